"""Clients that stall inside a frame, or never read what they are sent: frames, WebSocket pieces, answers, log lines.

Each row names what is filled. The longest round trip of a bystander is printed (`pytest -s`), but is no condition.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.hostile import LOGIN, LONG, Attack, run_attack
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.ws import BINARY, CONTINUATION, PING, PONG, TEXT, encode_frame, handshake_request

KEY = b"\0\0\0\0"
UPGRADE = handshake_request()


def announced(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.send("/topic/a", "", content_length=1_000_000)[:-1]]


def begun(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.send("/topic/a", "x" * 400_000, content_length=1_000_000)[:-1]]


def uncounted(number: int) -> Sequence[bytes]:
    return [LOGIN, b"SEND\ndestination:/topic/a\n\n", b"x" * 900_000]


def half_heads(number: int) -> Sequence[bytes]:
    return [LOGIN, b"SEND\n" + b"".join(b"h%d:%s\n" % (at, LONG.encode()) for at in range(90))]


def half_logins(number: int) -> Sequence[bytes]:
    return [b"CONNECT\n" + b"".join(b"h%d:%s\n" % (at, LONG.encode()) for at in range(7))]


def half_requests(number: int) -> Sequence[bytes]:
    return [b"GET / HTTP/1.1\r\nHost: x\r\nX: " + LONG.encode()]


def announced_pieces(number: int) -> Sequence[bytes]:
    piece = encode_frame(BINARY, b"x" * 100_000, length=1_000_000, mask_key=KEY)
    return [UPGRADE, encode_frame(TEXT, LOGIN, mask_key=KEY), piece]


def many_pieces(number: int) -> Sequence[bytes]:
    head = encode_frame(TEXT, b"SEND\ndestination:/topic/a\n\n", fin=False, mask_key=KEY)
    piece = encode_frame(CONTINUATION, b"x" * 10, fin=False, mask_key=KEY)
    return [UPGRADE, encode_frame(TEXT, LOGIN, mask_key=KEY), head, piece * 30_000]


def pings(number: int) -> Sequence[bytes]:
    ping = encode_frame(PING, b"x" * 125, mask_key=KEY)
    return [UPGRADE, encode_frame(TEXT, LOGIN, mask_key=KEY), *([ping * 1000] * 200)]


def line_ends(number: int) -> Sequence[bytes]:
    return [LOGIN, b"\n" * 1_000_000]


def websocket_line_ends(number: int) -> Sequence[bytes]:
    return [UPGRADE, encode_frame(TEXT, LOGIN, mask_key=KEY), encode_frame(TEXT, b"\n", mask_key=KEY) * 50_000]


def empty_pieces(number: int) -> Sequence[bytes]:
    first, piece = (encode_frame(opcode, b"", fin=False, mask_key=KEY) for opcode in (TEXT, CONTINUATION))
    return [UPGRADE, encode_frame(TEXT, LOGIN, mask_key=KEY), first, piece * 100_000]


def own_pongs(number: int) -> Sequence[bytes]:
    return [UPGRADE, encode_frame(TEXT, LOGIN, mask_key=KEY), encode_frame(PONG, b"", mask_key=KEY) * 100_000]


def small_frames(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.send("/topic/nobody", "") * 10_000]


def transactions(number: int) -> Sequence[bytes]:
    return [LOGIN, (frames.begin("t") + frames.abort("t")) * 8000]


def many_headers(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.send("/topic/nobody", "", **{f"h{at}": "" for at in range(90)}) * 600]


def escapes(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.send("/topic/nobody", "", h=":" * 4000) * 100]


def heads_by_bytes(number: int) -> Sequence[bytes]:
    return [bytes([byte]) for byte in half_requests(number)[0][:1500]]


def frames_by_bytes(number: int) -> Sequence[bytes]:
    return [LOGIN, *(bytes([byte]) for byte in half_heads(number)[1][:1500])]


def receipts(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.send("/topic/a", "x", receipt=f"{at}.{LONG}") for at in range(8000))]


def receipts_that_wait(number: int) -> Sequence[bytes]:
    visit = frames.subscribe(f"/topic/w{number}", "0", receipt=LONG) + frames.unsubscribe("0", receipt=LONG)
    return [LOGIN, *(visit for _ in range(4000))]


def queries(number: int) -> Sequence[bytes]:
    return [LOGIN, b"DIAG\nreceipt:r\n\nbenchmark\0" * 3000]


def errors(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.frame("WHAT", ("x", LONG), ("receipt", LONG))]


def disconnects(number: int) -> Sequence[bytes]:
    return [LOGIN, frames.send("/queue/bye", "x"), frames.disconnect(receipt=LONG)]


def nothing(number: int) -> Sequence[bytes]:
    return [b"\n"]


ATTACKS = [
    Attack("bodies of which no byte comes", announced, connections=280),
    Attack("bodies that are incomplete", begun, connections=280),
    Attack("bodies without length", uncounted, connections=150),
    Attack("incomplete header lines", half_heads, connections=200),
    Attack("incomplete CONNECT frames", half_logins, connections=300, hold_s=1.5),
    Attack("incomplete HTTP requests", half_requests, connections=300, hold_s=1.5),
    Attack("incomplete WebSocket frames", announced_pieces, connections=150),
    Attack("messages of many WebSocket frames", many_pieces, connections=100),
    Attack("line ends", line_ends, connections=100),
    Attack("line ends, each in a WebSocket message", websocket_line_ends, connections=100),
    Attack("messages of empty WebSocket frames", empty_pieces, connections=100),
    Attack("unsolicited pongs", own_pongs, connections=100),
    Attack("small frames", small_frames, connections=100),
    Attack("transactions that end at once", transactions, connections=100),
    Attack("frames with many headers", many_headers, connections=100),
    Attack("escapes", escapes, connections=100),
    Attack("requests byte by byte", heads_by_bytes, connections=100),
    Attack("frames byte by byte", frames_by_bytes, connections=100),
    Attack("pongs", pings, connections=4),
    Attack("RECEIPTs", receipts, connections=4),
    Attack("RECEIPTs that wait for other shards", receipts_that_wait, connections=4),
    Attack("DIAG answers", queries, connections=4),
    Attack("ERRORs, and their log lines", errors, connections=300, rounds=3, hold_s=0),
    Attack("connections that linger", disconnects, connections=200, rounds=2, leaves_by_reset=False, hold_s=0),
    Attack("silent connections", nothing, connections=300, hold_s=1.5),
    Attack("refused connections", announced, connections=300, settings={"max_connections": 50}),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_hostile_input_exceeds_no_bound(start_broker: StartBroker, attack: Attack) -> None:
    run_attack(start_broker, attack)
