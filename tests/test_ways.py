"""The ways of a SEND and of an ACK in ARCHITECTURE.md are those that the code takes, and leave no file out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SEND_FILES_MAX = 9

# The types of the names through which functions on the ways call others; `Owners` has its folder.
RECEIVERS = {
    "budget": "Budget",
    "chunks": "ChunkPool",
    "command": "command/Owners",
    "connections": "Connections",
    "conn": "Conn",
    "consumer": "ConsumerState",
    "consumers": "ConsumerStates",
    "decoder": "Decoder",
    "delivery": "delivery/Owners",
    "fan_outs": "FanOuts",
    "frame": "Frame",
    "group": "Group",
    "home": "Home",
    "incoming": "Incoming",
    "input": "Input",
    "life": "Life",
    "notes": "Notes",
    "outbox": "Outbox",
    "output": "Output",
    "parking": "Parking",
    "peers": "Peers",
    "pending_writes": "PendingWrites",
    "queue": "queue/Owners",
    "router": "Router",
    "session": "Session",
    "socket": "Socket",
    "stages": "Stages",
    "store": "Handle",
    "suffixes": "EncodedSuffixes",
    "table": "Conns",
    "turn": "Turn",
    "unacked": "Unacked",
    "unfinished": "Unfinished",
    "wait": "Wait",
}


# Names of the standard library's methods; the project has methods of these names, too.
OF_STD = {"len", "is_empty", "push", "get", "iter", "clear", "kind", "sum", "clone"}

# Files that no function on the ways stands in.
UNSHIPPED = r"(tests?|_model\w*|double|fixtures?)\.rs$|^simulation/|^door/(simulated|loomed|values)\b"
# What functions on the ways read or update: tables, buffers, counters and the types of values.
STATE = """
    collections/paged_deque.rs connection/conn.rs connection/input.rs connection/life.rs
    connection/outbox/positions.rs connection/output.rs connection/pending_writes.rs connection/pulse.rs
    connection/table.rs connection/unfinished.rs held.rs ids.rs message/chunk.rs message/mod.rs proto/error.rs
    proto/escape.rs proto/frame.rs proto/header.rs proto/version.rs queue/consumer_state.rs queue/consumer_states.rs
    queue/types.rs report/stages.rs router/group.rs router/interest.rs router/mod.rs router/names.rs shard/owners.rs
    store/handle.rs totals.rs turn/budget.rs turn/mod.rs
"""
# What they ask before they hand the frame on: whether it may go on, and by which name.
CHECKS = """
    command/arrival.rs command/temporary.rs connection/pausing.rs delivery/admission.rs queue/kept.rs router/fan_out.rs
"""
# The socket at both ends, the parts of the decoder, and what an ACK covers.
PARTS = """
    connection/acknowledgement.rs connection/socket.rs proto/decode/body.rs proto/decode/head.rs
    proto/decode/offender.rs
"""
# What else happens to frames: other commands and transports, several subscribers, errors, waiting, RECEIPTs, effects.
OTHER_WAYS = """
    command/commit.rs command/diagnostics.rs command/mod.rs command/send.rs command/subscribe.rs
    command/transaction.rs command/unsubscribe.rs connection/answering.rs connection/closing.rs
    connection/deadline.rs connection/http.rs connection/login.rs connection/mod.rs
    connection/outbox/drop_notice.rs connection/outbox/write_markers.rs connection/parked.rs
    connection/pending_range.rs connection/room.rs connection/websocket.rs delivery/copies.rs
    delivery/deferred.rs delivery/fan_out.rs delivery/full.rs delivery/mod.rs delivery/publish.rs
    delivery/replay.rs delivery/revoked.rs mail/peers.rs proto/heartbeat.rs proto/ws/encode.rs queue/dispatch.rs
    queue/lifetime.rs queue/notes.rs queue/pacing.rs requester.rs router/elsewhere.rs shard/settle.rs
    shard/sockets.rs
"""


class Function(NamedTuple):
    """A function of the broker or of the protocol crate."""

    file: str
    type: str
    """The type whose method it is, or empty."""
    name: str
    body: str


class Step(NamedTuple):
    """A line of a way."""

    number: int
    file: str
    function: str
    depth: int


def path(file: str) -> Path:
    """The path of a file of a way: `proto/…` is in the protocol crate, all others are in the broker."""
    crate, rest = ("proto", file[len("proto/") :]) if file.startswith("proto/") else ("broker", file)
    return ROOT / "rust" / crate / "src" / rest


@cache
def functions() -> tuple[Function, ...]:
    """All functions of both crates, without tests."""
    found: list[Function] = []
    for crate in ("broker", "proto"):
        source = ROOT / "rust" / crate / "src"
        for file in sorted(source.rglob("*.rs")):
            name = ("proto/" if crate == "proto" else "") + str(file.relative_to(source))
            if not re.search(UNSHIPPED, name):
                found += functions_in(name, file.read_text(encoding="utf-8"))
    return tuple(found)


def functions_in(file: str, text: str) -> Iterator[Function]:
    lines = re.split(r"^#\[cfg\(test\)\]\n(?:pub(?:\([^)]*\))? )?mod \w+ \{", text, flags=re.MULTILINE)[0].splitlines()
    owner = ""
    for at, line in enumerate(lines):
        if match := re.match(r"impl(?:<[^{]*?>)? (?:[\w:<>', ]+ for )?(\w+)", line):
            owner = f"{Path(file).parts[0]}/Owners" if match[1] == "Owners" else match[1]
        elif line == "}":
            owner = ""
        elif match := re.match(r"( *)(?:pub(?:\([^)]*\))? )?(?:const )?fn (\w+)", line):
            end = next((end for end in range(at, len(lines)) if lines[end] == match[1] + "}"), at)
            body = "\n".join(re.sub(r"//.*", "", part) for part in lines[at + 1 : end])
            yield Function(file, owner if match[1] else "", match[2], body)


@cache
def called_by(function: Function) -> set[Function]:
    """The functions of the project that a function calls, as far as names tell."""
    body = re.sub(r"(\w)\(\)\s*\.", r"\1.", function.body)
    return {
        callee
        for receiver, kind, name in re.findall(r"(?:(\w+)(?:\[[^\]]*\])?\s*)?(\.|::)?\s*\b(\w+)(?:::<[^>]*>)?\(", body)
        for callee in named(function, receiver, kind, name)
    }


def named(function: Function, receiver: str, kind: str, name: str) -> list[Function]:
    found = [callee for callee in functions() if callee.name == name]
    if receiver == "self" and kind == ".":
        return [callee for callee in found if callee.type == function.type]
    if receiver in RECEIVERS:
        return [callee for callee in found if callee.type == RECEIVERS[receiver]]
    if kind == "::":
        return [callee for callee in found if receiver in (callee.type, Path(callee.file).stem)]
    if not kind:
        return [callee for callee in found if not callee.type]
    # A method of something else, if only one file defines one of this name.
    return found if len({callee.file for callee in found}) == 1 and name not in OF_STD else []


def way(title: str) -> tuple[int, list[Step]]:
    """How many files the page says that a way has, and its lines; `title` is the sentence before it."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    match = re.search(title + r" (\d+) files[^`]*```text\n +file +function\n(.*?)\n```", page, re.DOTALL)
    assert match, title
    lines = [re.fullmatch(r" *(\d*) +([\w/]+\.rs) +(\w+)(?:  +.*)?", line) for line in match[2].splitlines()]
    assert None not in lines, match[2]
    return int(match[1]), [Step(int(line[1] or 0), line[2], line[3], line.start(3)) for line in lines if line]


def defined(step: Step) -> Function:
    """The function of a step, of which its file has one only."""
    (found,) = (one for one in functions() if (one.file, one.name) == (step.file, step.function))
    return found


def reached(steps: list[Step]) -> Iterator[tuple[Function, Function]]:
    """Each call into another file, by a step or by a function of its file that it calls: who calls, and whom."""
    waiting, seen = [defined(step) for step in steps], set[Function]()
    while waiting:
        caller = waiting.pop()
        if caller in seen:
            continue
        seen.add(caller)
        for callee in called_by(caller):
            if callee.file == caller.file:
                waiting.append(callee)
            else:
                yield caller, callee


TITLES = ("subscriber on the same shard passes", "An ACK passes")
both_ways = pytest.mark.parametrize("title", TITLES)


def test_a_send_to_a_local_subscriber_passes_few_files() -> None:
    count, _ = way(TITLES[0])
    assert count <= SEND_FILES_MAX


@both_ways
def test_the_files_of_a_way_are_numbered_in_order(title: str) -> None:
    count, steps = way(title)
    files = list(dict.fromkeys(step.file for step in steps))
    first = {file: next(step.number for step in steps if step.file == file) for file in files}
    assert [first[file] for file in files] == list(range(1, count + 1))
    assert sum(step.number > 0 for step in steps) == count == len(files)


@both_ways
def test_each_function_of_a_way_is_called_by_the_one_above_it(title: str) -> None:
    _, steps = way(title)
    turn = Step(0, "shard/mod.rs", "turn", -2), Step(0, "shard/mod.rs", "serve_sockets", -1)
    assert defined(turn[1]) in called_by(defined(turn[0]))
    for at, step in enumerate(steps):
        outer = [before for before in steps[:at] if before.depth < step.depth]
        callers = [outer[-1]] if outer else list(turn)
        assert any(defined(step) in called_by(defined(caller)) for caller in callers), f"{callers} does not call {step}"


@both_ways
def test_no_file_of_a_way_is_left_out(title: str) -> None:
    """A new file in a call is either on the way, or has its reason for not being on it in this module."""
    _, steps = way(title)
    known = {step.file for either in TITLES for step in way(either)[1]}
    known.update(*(files.split() for files in (STATE, CHECKS, PARTS, OTHER_WAYS)))
    unknown = {
        f"{caller.file}: {caller.name} calls {callee.name} of {callee.file}"
        for caller, callee in reached(steps)
        if callee.file not in known
    }
    assert not unknown


@both_ways
def test_what_is_only_asked_does_not_hand_the_frame_on(title: str) -> None:
    _, steps = way(title)
    on_the_way = {defined(step) for step in steps}
    beside = {*STATE.split(), *CHECKS.split(), *PARTS.split()}
    wrong = {
        f"{callee.file}: {callee.name} calls {onward.name}"
        for _, callee in reached(steps)
        if callee.file in beside
        for onward in called_by(callee) & on_the_way
    }
    assert not wrong


def test_files_beside_the_ways_are_called_from_them() -> None:
    """The lists in this module name nothing that has gone."""
    called = {callee.file for title in TITLES for _, callee in reached(way(title)[1])}
    named_here = {file for files in (STATE, CHECKS, PARTS, OTHER_WAYS) for file in files.split()}
    assert named_here <= called
