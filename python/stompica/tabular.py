"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_GAP = "  "


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the lines of a table with the first row's keys as columns; numbers are right-aligned. Empty: no lines."""
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
    """Formats a value for display on one line: `yes` and `no`, an empty string for None.

    What a terminal would act on is escaped, since clients choose names: line ends, colours, moves of the cursor.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = "" if value is None else str(value)
    return shown if shown.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in shown)
