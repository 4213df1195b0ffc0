"""Clients that are slow to log in, fall silent, or are half-closed (`login_timeout`, `heartbeat`)."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import CLOSE, PING, PONG, RawStream, WebSocket, handshake_request


@pytest.fixture
def impatient(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that waits one second for a login."""
    return shared_broker(login_timeout="1s")


# login_timeout


def test_a_partial_connect_times_out_with_an_error(impatient: BrokerProcess) -> None:
    """All connections at once, so that the test waits for the timeout only once."""
    with contextlib.ExitStack() as opened:
        wires = []
        for sent in (b"CONNECT\n", frames.connect()[:-1], b"\n\nSTOMP\nhost:x\n", b"CONNE"):
            wires.append(opened.enter_context(Wire(impatient.port)))
            wires[-1].send(sent)
        for wire in wires:
            wire.expect_error("E-LOGIN-TIMEOUT")


def test_nothing_but_eols_times_out(impatient: BrokerProcess) -> None:
    with contextlib.ExitStack() as opened:
        wires = []
        for sent in (b"", b"\n", b"\r\n\n"):
            wires.append(opened.enter_context(Wire(impatient.port)))
            wires[-1].send(sent)
        for wire in wires:
            assert [frame["code"] for frame in wire.frames_until_closed()] in ([], ["E-LOGIN-TIMEOUT"])


def test_a_partial_request_times_out(impatient: BrokerProcess) -> None:
    """The answer is 408, an ERROR if the input could still be STOMP, or only the end of the stream."""
    with contextlib.ExitStack() as opened:
        streams = []
        for sent in (b"G", b"GET / HT", handshake_request()[:-2]):
            streams.append(opened.enter_context(RawStream(impatient.port)))
            streams[-1].send(sent)
        for stream in streams:
            with contextlib.suppress(EOFError):
                stream.fill()
                if stream.buffer.startswith(b"HTTP/"):
                    assert stream.read_response().status == 408
                else:
                    assert b"E-LOGIN-TIMEOUT" in stream.buffer
                    stream.buffer.clear()
                stream.expect_eof()


def test_websocket_without_connect_times_out(impatient: BrokerProcess) -> None:
    with WebSocket.open(impatient.port) as client:
        client.expect_error_and_close("E-LOGIN-TIMEOUT", 1008)


def test_websocket_pings_are_no_login(impatient: BrokerProcess) -> None:
    with WebSocket.open(impatient.port) as client:
        deadline = time.monotonic() + 20
        while True:
            assert time.monotonic() < deadline, "still open after 20 s"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.send_frame(PING, b"x")
            if client.recv_ws().opcode != PONG:
                break


@pytest.mark.parametrize("drip", [b"\n", b"CONNECT\n" + b"a:b\n" * 90, handshake_request()])
def test_single_bytes_do_not_extend_the_login_timeout(impatient: BrokerProcess, drip: bytes) -> None:
    """One byte every 50 ms: each is a sign of life for the heart-beat, but no login."""
    with RawStream(impatient.port) as stream:
        stream.sock.settimeout(0.05)
        deadline = time.monotonic() + 20
        ended = False
        at = 0
        while not ended:
            assert time.monotonic() < deadline, "still open after 20 s"
            with contextlib.suppress(TimeoutError, BrokenPipeError):
                if at < len(drip) - 1 or len(drip) == 1:
                    stream.send(drip[at % len(drip) : at % len(drip) + 1])
                at += 1
                ended = stream.sock.recv(4096) == b""


def test_session_outlives_the_login_timeout(impatient: BrokerProcess) -> None:
    """A silent connection that is opened later and closed first shows that the timeout has passed."""
    with Wire(impatient.port) as session, WebSocket.connected(impatient.port) as other:
        session.connect()
        with Wire(impatient.port) as silent:
            silent.frames_until_closed()
        session.barrier()
        other.barrier()


def test_slow_login_within_the_time_works(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        wire.send_bytewise(frames.connect())
        wire.expect("CONNECTED", version="1.2")


# heart-beats


@pytest.mark.parametrize("version", frames.ESCAPING)
def test_a_silent_client_gets_an_error_and_is_closed(shared_broker: StartBroker, version: str) -> None:
    broker = shared_broker(heartbeat="0,1000")
    with Wire(broker.port) as wire:
        wire.connect(version, heart_beat="1000,0")
        wire.expect_error("E-HEART-BEAT-TIMEOUT")


def test_subscriptions_of_a_silent_client_are_gone(shared_broker: StartBroker, topic: str) -> None:
    broker = shared_broker(heartbeat="0,1000")
    with Wire(broker.port) as silent, Wire(broker.port) as other:
        silent.connect(heart_beat="1000,0")
        other.connect()
        silent.subscribe(topic)
        silent.expect_error("E-HEART-BEAT-TIMEOUT")
        other.subscribe(topic)
        other.send(frames.send(topic, "x"))
        other.expect_message("x")


# half-closed


def test_a_half_closed_client_gets_what_is_due(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        wire.connect()
        wire.send(*(frames.send("/topic/nobody", "x" * 100, receipt=f"r{at}") for at in range(500)))
        wire.half_close()
        for at in range(500):
            wire.expect_receipt(f"r{at}")
        wire.expect_closed()


def test_a_client_that_half_closes_inside_a_frame(broker: BrokerProcess, topic: str) -> None:
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        other.connect()
        other.subscribe(topic)
        wire.connect()
        wire.send(frames.send(topic, "whole", receipt="r"), frames.send(topic, "half")[:-1])
        wire.half_close()
        wire.expect_receipt("r")
        assert all(frame.command == "ERROR" for frame in wire.frames_until_closed())
        other.expect_message("whole")
        other.barrier()


def test_a_client_that_half_closes_before_connect(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        wire.half_close()
        assert all(frame.command == "ERROR" for frame in wire.frames_until_closed())


def test_a_half_closed_websocket_gets_what_is_due(broker: BrokerProcess) -> None:
    with WebSocket.connected(broker.port) as client:
        client.send(*(frames.send("/topic/nobody", "x", receipt=f"r{at}") for at in range(100)))
        client.half_close()
        for at in range(100):
            client.expect_receipt(f"r{at}")
        with contextlib.suppress(EOFError):
            assert client.recv_ws().opcode == CLOSE
            client.stream.expect_eof()


# publish_timeout


def test_a_send_held_longer_than_publish_timeout_is_refused(start_broker: StartBroker) -> None:
    """A queue that nobody reads fills the memory, so the next SEND to it is held; idle connections stay open."""
    broker = start_broker(memory_limit="1MiB", publish_timeout="300ms")
    with Wire(broker.port) as holder, Wire(broker.port) as publisher:
        holder.connect()
        publisher.connect()
        holder.send(frames.begin("t", receipt="held"))
        holder.expect_receipt("held")
        publisher.send(*(frames.send("/queue/unread", "x" * 1000) for _ in range(2000)))
        error = publisher.expect_error("E-MEMORY")
        assert "publish_timeout" in error.text
        holder.send(frames.commit("t", receipt="alive"))
        holder.expect_receipt("alive")
