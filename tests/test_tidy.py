"""Checks the style rules: lengths of files and lines, words, and files with unsafe code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
# The formatters keep to 110 (Rust) and 120 (Python), but leave long strings and comments alone.
LINE_COLUMNS_MAX = 140

# Files that may be longer (up to 600 lines), each with its reason.
LONGER: dict[str, str] = {}

# Files whose lines may be wider, each with its reason.
WIDER = {"rust/broker/src/config/table.rs": "a table: one row a setting, its prose in one piece"}

BANNED = {
    r"\bTODO\b|\bFIXME\b|\bXXX\b": "an open end belongs into an issue",
    r"\bdbg!\(|\btodo!\(|\bunimplemented!\(": "left over from writing",
    r"#\[ignore": "a test that does not run tests nothing",
    r"(?i)\bheart ?beat interval\b|\bsubscribtion\b|\breciept\b": "a word of another spelling",
}


def tracked(*patterns: str) -> list[str]:
    """Names of the files under version control that match."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


SOURCES = tracked("rust/*.rs", "bench/*.rs", "python/*.py", "bench/*.py", "docs/*.py", "examples/*.py")
TESTS = tracked("tests/*.py")


def is_test(name: str) -> bool:
    """Test code may be as long as its scenarios are."""
    return "/tests/" in name or name.startswith("tests/") or name.endswith(("_tests.rs", "/tests.rs"))


def code(name: str) -> list[str]:
    """A file's lines without the unit tests at its end."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    if name.endswith(".rs"):
        for number, line in enumerate(lines):
            if line == "#[cfg(test)]" and number + 1 < len(lines) and lines[number + 1].startswith("mod "):
                return lines[:number]
    return lines


def test_a_file_is_read_in_one_sitting() -> None:
    lengths = {name: len(code(name)) for name in SOURCES if not is_test(name)}
    long = {name: lines for name, lines in lengths.items() if lines > (600 if name in LONGER else FILE_LINES_MAX)}
    assert not long, f"split by nouns: {long}"


def functions(name: str) -> Iterator[tuple[str, int]]:
    """Each function's name and its number of lines, from its first line to the line that closes it."""
    lines = code(name)
    start = (
        r"(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?(?:unsafe )?fn (\w+)"
        if name.endswith(".rs")
        else r"(\s*)(?:async )?def (\w+)"
    )
    for number, line in enumerate(lines):
        found = re.match(start, line)
        if not found:
            continue
        indent = found[1]
        if name.endswith(".rs"):
            closing = (i for i in range(number, len(lines)) if lines[i].rstrip() in (f"{indent}}}", f"{indent}}};"))
            last = next(closing, number) if not line.rstrip().endswith((";", "}")) else number
        else:
            body = range(number + 1, len(lines))
            inside = [i for i in body if lines[i].strip()]
            last = number
            for i in inside:
                if not lines[i].startswith(indent + " ") and not lines[i].startswith(indent + ")"):
                    break
                last = i
        yield found[2], last - number + 1


def test_a_function_does_one_job() -> None:
    named = ((name, *found) for name in SOURCES if not is_test(name) for found in functions(name))
    long = [f"{name}: {function}, {lines} lines" for name, function, lines in named if lines > FUNCTION_LINES_MAX]
    assert not long, "\n".join(long)


def test_lines_fit_a_window() -> None:
    wide = [
        f"{name}:{number}: {len(line)} columns"
        for name in SOURCES + TESTS
        if name not in WIDER and not (name.endswith(".rs") and is_test(name))
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LINE_COLUMNS_MAX and "http" not in line
    ]
    assert not wide, "\n".join(wide)


def test_no_loose_ends() -> None:
    found = [
        f"{name}: {match[0]!r}: {reason}"
        for name in SOURCES + TESTS
        if not name.endswith("test_tidy.py")
        for pattern, reason in BANNED.items()
        for match in re.finditer(pattern, (ROOT / name).read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_every_unsafe_says_why_it_is_safe() -> None:
    for name in tracked("rust/*.rs"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe (\{|impl|fn)", line) and not line.lstrip().startswith("//"):
                before = "\n".join(lines[max(0, number - 6) : number + 1])
                assert "SAFETY:" in before or "# Safety" in before, f"{name}:{number + 1}: unsafe without SAFETY:"


# What needs a clock, a thread or a system: not for the protocol crate.
NOT_SANS_IO = r"std::(fs|thread)\b|\b(Tcp|Unix)(Stream|Listener)\b|\bmio::|\bpyo3::|(Instant|SystemTime)::now"


def test_the_protocol_crate_has_no_io_and_no_unsafe() -> None:
    assert "forbid(unsafe_code)" in (ROOT / "rust/proto/src/lib.rs").read_text(encoding="utf-8")
    for name in tracked("rust/proto/src/*.rs"):
        text = "\n".join(code(name))
        found = re.search(NOT_SANS_IO, text)
        assert not found, f"{name}: {found[0]} in the sans-io crate" if found else ""
