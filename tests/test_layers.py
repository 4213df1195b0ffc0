"""The broker's layers: a folder imports only folders below it, and a type's methods stand in its own folder.

All ways to the outside lead through one folder, so that the simulator can stand in for the outside.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "rust/broker/src"

# Lowest first. A file uses its own folder and those before it in this list.
LAYERS = (
    "owners",
    "door",
    "clock",
    "text",
    "collections",
    "log",
    "config",
    "ids",
    "requester",
    "stats",
    "timer",
    "totals",
    "report",
    "turn",
    "destination",
    "message",
    "store",
    "router",
    "queue",
    "connection",
    "mail",
    "delivery",
    "diag",
    "command",
    "shard",
    "broker",
)

# They drive shards turn by turn, for tests, fuzz targets and the simulator: they stand above all others.
DRIVERS = {"simulation", "simulated", "snapshot", "lib"}


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".rs")


def without_tests(text: str) -> str:
    # A module in a file of its own may be declared anywhere; one in braces is the end of the file.
    for_tests = r"^#\[cfg\((?:test|all\(test)[^\n]*\n(?:#\[path[^\n]*\n)?(?:pub\(\w+\) )?mod \w+"
    return re.split(for_tests + r" \{", re.sub(for_tests + r";\n", "", text, flags=re.M), flags=re.M)[0]


def sources() -> dict[Path, str]:
    """The code of each file of the broker, without its unit tests."""
    files = (path for path in SOURCE.rglob("*.rs") if layer(path) not in DRIVERS)
    tests = re.compile(r"tests?\.rs$|_model\w*\.rs$")
    return {path: without_tests(path.read_text(encoding="utf-8")) for path in files if not tests.search(path.name)}


def test_every_folder_has_its_layer() -> None:
    assert {layer(path) for path in sources()} <= set(LAYERS)


def test_a_layer_uses_only_those_below_it() -> None:
    found = set()
    for path, text in sources().items():
        own = LAYERS.index(layer(path))
        code = re.sub(r"^\s*//.*$", "", text, flags=re.M)
        for used in set(re.findall(r"\bcrate::(\w+)", code)):
            if used in LAYERS and LAYERS.index(used) > own:
                found.add((str(path.relative_to(SOURCE)), used))
    assert not found


def test_methods_stand_in_the_folder_of_their_type() -> None:
    defined: dict[str, set[str]] = {}
    for path, text in sources().items():
        for name in re.findall(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum) (\w+)", text, flags=re.M):
            defined.setdefault(name, set()).add(layer(path))
    found = set()
    for path, text in sources().items():
        for name in re.findall(r"^impl(?:<[^>]*>)? (?:\w[\w:<>', ]* for )?(\w+)", text, flags=re.M):
            if name in defined and layer(path) not in defined[name]:
                found.add((str(path.relative_to(SOURCE)), name))
    assert not found


# What nobody else may use: sockets and polls, clocks, randomness, tables whose order changes from run to run.
OUTSIDE = {
    "mio": r"\bmio::",
    "sockets": r"\b(?:std::net::(?:Tcp|Udp|\{[^}]*Tcp)|socket2::)",
    "clocks": r"\bstd::time::(?:Instant|SystemTime)\b|\bSystemTime::now|std::time::\{[^}]*\bInstant\b|clock_gettime",
    "randomness": r"\brand::|\bgetrandom",
    "hash tables": r"\bRandomState\b|std::collections::(?:Hash|\{[^}]*Hash)",
    "threads": r"\bthread::sleep\b",
}
# The handle runs on the caller's thread, outside of the simulated broker.
EXCEPT = {("broker.rs", "threads")}


def test_only_doors_lead_outside() -> None:
    found = set()
    for path, text in sources().items():
        name = str(path.relative_to(SOURCE))
        code = re.sub(r"^\s*//.*$", "", text, flags=re.M)
        if name.startswith("door/") or name.endswith("double.rs"):
            continue
        for kind, pattern in OUTSIDE.items():
            if (name, kind) not in EXCEPT and re.search(pattern, code):
                found.add((name, kind))
    assert not found
