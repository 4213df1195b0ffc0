"""Heart-beats over WebSocket (docs/behaviour.md, sections 1 and 3): EOL messages both ways, a Ping to a late client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess
from tests.support.ws import CONTINUATION, PING, PONG, TEXT, WebSocket

INTERVAL_MS = 600
ROUNDS = 4
"""Beats to wait for: well over the tolerance of two intervals."""


@pytest.fixture
def beating(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that offers and requests a heart-beat each `INTERVAL_MS`."""
    return shared_broker(heartbeat=f"{INTERVAL_MS},{INTERVAL_MS}")


@pytest.fixture
def both(beating: BrokerProcess) -> Iterator[WebSocket]:
    """A session with heart-beats both ways."""
    with WebSocket.connected(beating.port, heart_beat=f"{INTERVAL_MS},{INTERVAL_MS}") as client:
        yield client


@pytest.fixture
def silent(beating: BrokerProcess) -> Iterator[WebSocket]:
    """A session that has promised heart-beats but sends none."""
    with WebSocket.connected(beating.port, heart_beat=f"{INTERVAL_MS},0") as client:
        yield client


def test_server_heart_beat_is_a_message_of_one_eol(beating: BrokerProcess) -> None:
    with WebSocket.connected(beating.port, heart_beat=f"0,{INTERVAL_MS}") as client:
        for _ in range(3):
            message = client.recv_message()
            assert message is not None
            assert message[1] in (b"\n", b"\r\n"), message


@pytest.mark.parametrize("beat", [b"\n", b"\r\n"])
def test_client_heart_beats_keep_the_session_alive(both: WebSocket, beat: bytes) -> None:
    for _ in range(ROUNDS):
        both.wait_beats(1)
        both.send(beat)
    both.barrier()


def test_any_bytes_count_as_a_sign_of_life_even_inside_a_frame(both: WebSocket) -> None:
    both.subscribe("/topic/long-frame")
    sent = frames.send("/topic/long-frame", "x" * 100)
    both.send_frame(TEXT, sent[:20], fin=False)
    for at in range(ROUNDS):
        both.wait_beats(1)
        both.send_frame(CONTINUATION, sent[20 + at : 21 + at], fin=False)
    both.send_frame(CONTINUATION, sent[20 + ROUNDS :])
    both.expect_message("x" * 100)


@pytest.mark.parametrize("opcode", [PING, PONG])
def test_control_frames_count_as_a_sign_of_life(both: WebSocket, opcode: int) -> None:
    for _ in range(ROUNDS):
        both.wait_beats(1)
        both.send_frame(opcode, b"alive")
    both.barrier()


def test_late_client_is_pinged_and_closed_if_the_pong_is_missing_too(silent: WebSocket) -> None:
    frame = silent.recv_ws()
    assert frame.opcode == PING, frame
    silent.expect_error_and_close("E-HEART-BEAT-TIMEOUT", 1002)
    assert silent.controls == []


def test_late_client_that_answers_pings_stays(silent: WebSocket) -> None:
    """Like a throttled browser tab: its timers do not run, but the browser itself answers pings."""
    for _ in range(3):
        frame = silent.recv_ws()
        assert frame.opcode == PING, frame
        silent.send_frame(PONG, frame.payload)
    silent.barrier()


def test_no_heart_beats_are_sent_without_agreement(beating: BrokerProcess, both: WebSocket) -> None:
    """Another session measures the time: while it gets its heart-beats, this one gets nothing."""
    with WebSocket.connected(beating.port, heart_beat="0,0") as quiet:
        for _ in range(ROUNDS):
            both.wait_beats(1)
            both.send(b"\n")
        quiet.barrier()
        assert quiet.beats == 0
