"""The layout of the tests: what the files are called, where they stand, and which files import which."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
SKIPPED = {"node_modules", ".venv"}
FILES = sorted(
    path.relative_to(TESTS) for path in TESTS.rglob("*.py") if SKIPPED.isdisjoint(path.relative_to(TESTS).parts)
)
WIRE_AREAS = {
    "ack",
    "compatibility",
    "connection",
    "diag",
    "durable",
    "expiry",
    "framing",
    "limits",
    "log",
    "queue",
    "recording",
    "store",
    "subscription",
    "temporary",
    "topic",
    "transaction",
    "websocket",
}


def is_test_module(name: str) -> bool:
    """Whether a dotted name is that of a test module."""
    return name.split(".")[-1].startswith("test_")


def imported_modules(source: str) -> set[str]:
    """The dotted names that a module imports, anywhere in it; of `from a import b` both `a` and `a.b`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def imported_test_modules(source: str) -> set[str]:
    """The test modules that a module imports."""
    return {name for name in imported_modules(source) if name.startswith("tests.") and is_test_module(name)}


def test_no_test_file_is_numbered() -> None:
    numbered = [str(path) for path in FILES if re.match(r"test_\d", path.name)]
    assert not numbered, f"name the behaviour: {numbered}"


def test_no_module_imports_a_test_module() -> None:
    found = {str(path): names for path in FILES if (names := imported_test_modules((TESTS / path).read_text()))}
    assert not found, f"move what is shared into tests/support or a conftest.py: {found}"


def test_an_import_of_a_test_module_is_detected() -> None:
    assert imported_test_modules("from tests.wire.ack.test_acks import x") == {"tests.wire.ack.test_acks"}
    assert imported_test_modules("def f():\n    from tests.api import test_cli") == {"tests.api.test_cli"}
    assert imported_test_modules("import tests.api.test_cli as cli") == {"tests.api.test_cli"}
    assert imported_test_modules("from tests.support.queues import take") == set()


def test_every_wire_test_stands_in_a_known_area() -> None:
    wire = [path.relative_to("wire") for path in FILES if path.parts[0] == "wire"]
    assert {path.parts[0] for path in wire if len(path.parts) > 1} == WIRE_AREAS
    assert {path.name for path in wire if len(path.parts) == 1} == {"__init__.py", "conftest.py"}
    assert all(len(path.parts) <= 2 for path in wire), "areas have no folders of their own"
