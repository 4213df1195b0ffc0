"""docs/diag.md shows DIAG frame by frame: a broker that has just been started answers exactly like that."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import frames
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

PAGE = Path(__file__).parent.parent.parent / "docs" / "diag.md"
BLOCK = re.compile(r"^```(client|broker)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def dialogue() -> list[tuple[str, bytes]]:
    """Returns the frames of the page in order, each with its sender."""
    text = PAGE.read_text(encoding="utf-8")
    return [(sender, frame.replace("^@", "\0").encode()) for sender, frame in BLOCK.findall(text)]


def pool(frame: bytes) -> bytes:
    """Masks the numbers of `ws_buffer`: how often buffers are reused depends on how often the broker writes."""
    return re.sub(rb"\d+", b"N", frame) if frame.startswith(b"DIAG\nws_buffer:") else frame


def received(wire: Wire, length: int) -> bytes:
    """Reads exactly `length` bytes."""
    found = b""
    wire.sock.settimeout(wire.timeout)
    while len(found) < length:
        piece = wire.sock.recv(length - len(found))
        assert piece, f"the stream ended after {found!r}"
        found += piece
    return found


def test_the_broker_answers_as_the_page_shows() -> None:
    shown = dialogue()
    assert len(shown) >= 20
    with BrokerProcess(writers=1, ids="sequential") as broker, Wire(broker.port) as wire:
        wire.send(frames.connect("1.2", heart_beat="0,0"))
        wire.expect("CONNECTED")
        for sender, frame in shown:
            if sender == "client":
                wire.send(frame)
            else:
                assert pool(received(wire, len(frame))) == pool(frame)
        assert wire.sock.recv(1) == b"", "the connection did not end after the ERROR"


def test_the_page_shows_both_ways_to_query() -> None:
    queries = [frame for sender, frame in dialogue() if sender == "client"]
    by_frame = {frame.partition(b"\n\n")[2] for frame in queries if frame.startswith(b"DIAG\n")}
    by_topic = {frame.partition(b"\n\n")[2] for frame in queries if frame.startswith(b"SEND\ndestination:DIAG\n")}
    assert {b"session\0", b"ws_buffer\0", b"stale\0"} <= by_frame
    assert {b"session\0", b"stale\0"} <= by_topic
