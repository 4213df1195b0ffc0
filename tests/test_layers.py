"""The broker's layers: a folder imports only folders below it, and a type's methods stand in its own folder.

All ways to the outside lead through one folder, so that the simulator can stand in for the outside.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "rust/broker/src"
PROTOCOL = SOURCE.parent.parent / "proto/src"

# Lowest first. A file uses its own folder and those before it in this list.
LAYERS = (
    "owners",
    "door",
    "clock",
    "held",
    "text",
    "collections",
    "log",
    "config",
    "ids",
    "requester",
    "audit",
    "stats",
    "timer",
    "totals",
    "report",
    "turn",
    "destination",
    "message",
    "store",
    "recorded",
    "router",
    "queue",
    "connection",
    "mail",
    "delivery",
    "diag",
    "command",
    "shard",
    "storage",
    "broker",
)

# They drive shards turn by turn, for tests, fuzz targets and the simulator: they stand above all others.
DRIVERS = {"interleaved", "simulation", "simulated", "snapshot", "usage", "lib"}


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


# What nobody else may use. The names of `std::…` are looked for in the flattened imports: see `paths`.
OUTSIDE = {
    "mio": r"\bmio::",
    "sockets": r"\bstd::(?:os::fd|os::unix::net)\b|\bstd::net::(?:Tcp|Udp)|\bsocket2::",
    "files and processes": r"\bstd::(?:fs|process)\b|\bstd::io::std",
    "environment": r"\bstd::env\b",
    "clocks": r"\bstd::time::(?:Instant|UNIX_EPOCH)\b|\bSystemTime::now\b|\bclock_gettime",
    "randomness": r"\brand::|\bgetrandom",
    # Tables whose order changes from run to run.
    "hash tables": r"\bRandomState\b|\bstd::collections::(?:Hash|hash_\w+::(?!Entry\b))|\bDefaultHashBuilder\b",
    "system calls": r"\blibc::\w+\(",
    # What threads share comes through door/sync.rs, so that rust/loom can run it in every order.
    "threads": r"\bstd::thread\b|\bthread_local!",
    "locks and atomics": r"\bstd::sync::(?!Arc\b|PoisonError\b|Weak\b)|\bcore::sync\b|\bspin_loop\b",
    # State that outlives a broker, and would make a simulated run depend on those before it.
    "statics": r"^\s*(?:pub(?:\([^)]*\))? )?static (?:mut \w+|\w+\s*:(?!\s*&))|\blazy_static!",
    # Addresses differ from run to run: nothing may be compared, ordered or hashed by them.
    "addresses": r"\bptr_eq\b|\bas_ptr\([^)]*\) as\b|\bas_ptr_range\b|\bas \*const\b|\.addr\(\)|\{:p\}|\bTypeId\b"
    r"|\bptr::(?:from_ref|eq|hash|addr_eq)\b",
}
# The files that may.
EXCEPT = {
    # The machine's size decides defaults of settings, before a broker starts. The simulator sets them.
    ("config/system.rs", "files and processes"),
    ("config/system.rs", "system calls"),
    ("config/system.rs", "threads"),
    # Each simulated shard has a value of its own: see simulated.rs.
    ("held.rs", "statics"),
    # It is empty after each turn, and when a simulated broker starts.
    ("requester.rs", "statics"),
}


def paths(code: str) -> str:
    """The code with `use a::{b, c::d};` written as `use a::b; use a::c::d;`, so that one pattern finds each name."""

    def flat(prefix: str, rest: str) -> list[str]:
        parts, depth, start = [], 0, 0
        for at, letter in enumerate(rest):
            depth += (letter == "{") - (letter == "}")
            if letter == "," and depth == 0:
                parts.append(rest[start:at])
                start = at + 1
        parts.append(rest[start:])
        found = []
        for part in (part.strip() for part in parts):
            inner = re.fullmatch(r"([\w:]*?)\{(.*)\}", part, flags=re.S)
            found += flat(prefix + inner[1], inner[2]) if inner else [prefix + part] if part else []
        return found

    def written(match: re.Match[str]) -> str:
        return "".join(f"{match[1]}use {name};\n" for name in flat("", match[2]))

    return re.sub(r"^([ \t]*(?:pub(?:\([^)]*\))? )?)use ([^;]*\{[^;]*);", written, code, flags=re.M)


def leaks(code: str) -> set[str]:
    """The kinds of ways to the outside that this code uses."""
    code = paths(re.sub(r"//.*$", "", code, flags=re.M))
    return {kind for kind, pattern in OUTSIDE.items() if re.search(pattern, code, flags=re.M)}


def test_only_doors_lead_outside() -> None:
    found = set()
    for path, text in sources().items():
        name = str(path.relative_to(SOURCE))
        if not name.startswith("door/") and not name.endswith("double.rs"):
            found |= {(name, kind) for kind in leaks(text)}
    assert found == EXCEPT


def test_threads_of_the_shipped_build_share_the_standard_librarys_types() -> None:
    code = re.sub(r"^\s*//.*$", "", (SOURCE / "door/sync.rs").read_text(encoding="utf-8"), flags=re.M)
    shipped = re.sub(r"#\[cfg\(loom\)\]\n(?:macro_rules! .*?^\}|[^;]*;)", "", code, flags=re.M | re.S)
    items = [item.strip() for item in shipped.replace("#[cfg(not(loom))]", "").split(";") if item.strip()]
    assert items and all(item.startswith("pub use std::") for item in items), items


def test_the_protocol_crate_leads_nowhere() -> None:
    for path in PROTOCOL.rglob("*.rs"):
        assert not leaks(without_tests(path.read_text(encoding="utf-8"))), path


def test_ways_outside_are_found_however_they_are_written() -> None:
    for kind, code in (
        ("hash tables", "use std::{cell::Cell, collections::{BTreeMap, HashMap}};"),
        ("hash tables", "let seen = std::collections::HashSet::new();"),
        ("clocks", "use std::time::{Duration, Instant};"),
        ("clocks", "let now = std::time::SystemTime::now();"),
        ("locks and atomics", "use std::sync::{Arc, atomic::AtomicU64};"),
        ("locks and atomics", "static CELL: std::sync::OnceLock<u8> = std::sync::OnceLock::new();"),
        ("threads", "    use std::{sync::Arc, thread};"),
        ("statics", "static SEEN: AtomicU64 = AtomicU64::new(0);"),
        ("statics", "    static HELD: Cell<i64> = const { Cell::new(0) };"),
        ("addresses", "batches.sort_by_key(|batch| Arc::as_ptr(batch) as usize);"),
        ("addresses", "if Arc::ptr_eq(one, other) {}"),
        ("environment", 'let home = std::env::var("HOME");'),
        ("files and processes", "let id = std::process::id();"),
        ("system calls", "unsafe { libc::getpid() }"),
        ("randomness", "let number: u64 = rand::random();"),
    ):
        assert kind in leaks(code), code
    for code in (
        "use std::sync::Arc;",
        "static NAMES: &[&str] = &[];",
        "fn name() -> &'static str {}",
        "// rand::random()",
    ):
        assert not leaks(code), code
