"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_GAP = "  "


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of a table whose columns are the first row's keys; numbers stand to the right. Nothing for no rows."""
    if not rows:
        return
    names = list(rows[0])
    texts = [names, *([text(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in texts) for at in range(len(names))]
    right = [isinstance(rows[0][name], (int, float)) for name in names]
    for line in texts:
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        )
        yield _GAP.join(cells).rstrip()


def text(value: Any) -> str:
    """A value for a person: `yes` and `no`, an empty text for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
