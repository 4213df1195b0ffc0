"""docs/errors.md lists the error codes of rust/proto/src/error.rs: all of them, in its order, in its words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Code(NamedTuple):
    code: str
    message: str
    websocket_close: int
    when: str


# One entry of the macro `codes!`: doc comment, name, code, message, close code.
ENTRY = re.compile(r'((?: {4}/// .*\n)+) {4}\w+ = "(E-[A-Z0-9-]+)", "([^"]+)", (\d+);')
ROW = re.compile(r"\| `(E-[A-Z0-9-]+)` \| ([^|]+) \| (\d+) \| (.+) \|")


def defined() -> list[Code]:
    """The codes of the source."""
    text = (ROOT / "rust" / "proto" / "src" / "error.rs").read_text(encoding="utf-8")
    codes = text[text.index("\ncodes! {") : text.index("\n}\n", text.index("\ncodes! {"))]
    entries = [Code(code, message, int(close), comment(doc)) for doc, code, message, close in ENTRY.findall(codes)]
    assert len(entries) == codes.count(' = "E-') > 0, "an entry of another form: change ENTRY"
    return entries


def comment(doc: str) -> str:
    """A doc comment as running text."""
    return " ".join(line.strip().removeprefix("///").strip() for line in doc.splitlines())


def documented() -> list[Code]:
    """The rows of the table."""
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = [match for line in page.splitlines() if (match := ROW.fullmatch(line))]
    assert len(rows) == page.count("\n| `E-"), "a row of another form"
    return [Code(row[1], row[2], int(row[3]), row[4]) for row in rows]


def test_the_table_lists_every_code_with_its_message_and_close_code() -> None:
    assert [row[:3] for row in documented()] == [code[:3] for code in defined()]


def test_the_table_says_when_in_the_words_of_the_source() -> None:
    """A row may go on where the comment in the source ends."""
    for row, code in zip(documented(), defined(), strict=True):
        assert row.when.startswith(code.when), f"{code.code}: the source says {code.when!r}"
