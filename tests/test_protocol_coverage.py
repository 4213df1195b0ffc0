"""Every demand of STOMP 1.0 to 1.2 and of RFC 6455 has a test, or names the later issue that will add it."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
from pathlib import Path
from typing import Any

# Python 3.10 has no TOML reader; with it, pytest installs tomli.
toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parent.parent
COVERAGE: dict[str, list[dict[str, Any]]] = toml.loads((ROOT / "tests/protocol_coverage.toml").read_text())
STOMP_NUMBERS = range(1, 75)
RFC6455_SECTIONS = {
    *("4.2.1", "4.2.2", "4.4", "5.1", "5.2", "5.3", "5.4", "5.5", "5.5.1", "5.5.2", "5.5.3", "5.6", "6.1", "6.2"),
    *("7.1.1", "7.1.7", "7.2.2", "7.4.1", "7.4.2", "8.1", "9.1", "10.4", "10.7"),
}
CRATES = {
    "stompica-proto": "rust/proto",
    "stompica-broker": "rust/broker",
    "stompica-py": "rust/py",
    "stompica-loadgen": "bench/loadgen",
}


@functools.cache
def python_tests(path: Path) -> frozenset[str]:
    """The test functions of a file, those of classes as `Class::test`."""
    if not path.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(path.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and member.name.startswith("test"):
                found.add(prefix + member.name)
    return frozenset(found)


@functools.cache
def rust_tests(crate: str) -> frozenset[str]:
    """The functions behind a #[test] anywhere in the crate."""
    pattern = re.compile(r"#\[test\](?:\s*(?:#\[[^\]]*\]|///?[^\n]*))*\s*fn (\w+)")
    sources = (ROOT / CRATES[crate]).rglob("*.rs")
    return frozenset(name for source in sources for name in pattern.findall(source.read_text()))


def exists(test: str) -> bool:
    """Whether the named test is in the tree."""
    if test.startswith("rust:"):
        crate, *_, name = test.removeprefix("rust:").split("::")
        return crate in CRATES and name in rust_tests(crate)
    path, _, name = test.partition("::")
    return name in python_tests(ROOT / path)


def entries() -> list[dict[str, Any]]:
    """The entries of both parts of the file."""
    return [*COVERAGE["stomp"], *COVERAGE["rfc6455"]]


def test_every_number_of_the_stomp_checklist_is_listed_once() -> None:
    assert [entry["number"] for entry in COVERAGE["stomp"]] == list(STOMP_NUMBERS)


def test_every_section_of_rfc_6455_with_a_demand_on_servers_is_listed() -> None:
    assert {entry["section"] for entry in COVERAGE["rfc6455"]} == RFC6455_SECTIONS


def test_every_entry_has_a_test_or_a_later_issue() -> None:
    gaps = [entry for entry in entries() if not entry.get("tests") and not entry.get("later")]
    assert not gaps, f"no test and no later issue: {gaps}"


def test_every_entry_states_its_demand() -> None:
    keys = {"number", "section", "text", "tests", "later"}
    assert all(entry.get("text") and set(entry) <= keys for entry in entries())
    assert all(re.match(r"issue \d", entry["later"]) for entry in entries() if "later" in entry)


def test_every_named_test_exists() -> None:
    missing = {test for entry in entries() for test in entry.get("tests", []) if not exists(test)}
    assert not missing, f"named in protocol_coverage.toml, but not in the tree: {sorted(missing)}"


def test_a_gap_and_a_missing_test_are_detected() -> None:
    assert exists("tests/test_protocol_coverage.py::test_a_gap_and_a_missing_test_are_detected")
    assert not exists("tests/test_protocol_coverage.py::test_that_is_not_there")
    assert not exists("tests/not_there.py::test_a_gap_and_a_missing_test_are_detected")
    assert exists("rust:stompica-proto::codes_are_unique_and_close_codes_are_legal")
    assert not exists("rust:stompica-proto::that_is_not_there")
    assert not exists("rust:no-such-crate::codes_are_unique_and_close_codes_are_legal")
