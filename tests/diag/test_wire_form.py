"""docs/diag.md shows DIAG frame by frame: a broker that has just been started answers exactly so."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import frames
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

PAGE = Path(__file__).parent.parent.parent / "docs" / "diag.md"
BLOCK = re.compile(r"^```(client|broker)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def dialogue() -> list[tuple[str, bytes]]:
    """Who says what, in the order of the page."""
    text = PAGE.read_text(encoding="utf-8")
    return [(who, frame.replace("^@", "\0").encode()) for who, frame in BLOCK.findall(text)]


def pool(frame: bytes) -> bytes:
    """How often buffers are used again depends on how often the broker writes: numbers of `ws_buffer` are any."""
    return re.sub(rb"\d+", b"N", frame) if frame.startswith(b"DIAG\nws_buffer:") else frame


def received(wire: Wire, length: int) -> bytes:
    """So many bytes."""
    found = b""
    wire.sock.settimeout(wire.timeout)
    while len(found) < length:
        piece = wire.sock.recv(length - len(found))
        assert piece, f"the end after {found!r}"
        found += piece
    return found


def test_the_broker_says_what_the_page_says() -> None:
    said = dialogue()
    assert len(said) >= 20
    with BrokerProcess(writers=1, ids="sequential") as broker, Wire(broker.port) as wire:
        wire.send(frames.connect("1.2", heart_beat="0,0"))
        wire.expect("CONNECTED")
        for who, frame in said:
            if who == "client":
                wire.send(frame)
            else:
                assert pool(received(wire, len(frame))) == pool(frame)
        assert wire.sock.recv(1) == b"", "the last one is an ERROR"


def test_the_page_asks_by_both_ways() -> None:
    asked = [frame for who, frame in dialogue() if who == "client"]
    by_frame = {frame.partition(b"\n\n")[2] for frame in asked if frame.startswith(b"DIAG\n")}
    by_topic = {frame.partition(b"\n\n")[2] for frame in asked if frame.startswith(b"SEND\ndestination:DIAG\n")}
    assert {b"session\0", b"ws_buffer\0", b"stale\0"} <= by_frame
    assert {b"session\0", b"stale\0"} <= by_topic
