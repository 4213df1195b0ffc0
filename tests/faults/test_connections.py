"""Many connections, resets, and connections over the limit (docs/behaviour.md, section 1)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.probes import descriptors
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import TEXT, RawStream, WebSocket, encode_frame, handshake_request

STAGES = {
    "nothing": b"",
    "an EOL": b"\n",
    "a part of a CONNECT": frames.connect()[:9],
    "a CONNECT": frames.connect(),
    "a subscription": frames.connect() + frames.subscribe("/topic/resets", "0"),
    "a part of a SEND": frames.connect() + frames.send("/topic/resets", "x" * 100)[:-50],
    "a SEND": frames.connect() + frames.subscribe("/topic/resets", "0") + frames.send("/topic/resets", "x" * 1000),
    "an error": b"WHAT\n\n\0",
    "a part of a handshake": handshake_request()[:40],
    "a handshake": handshake_request(),
    "a part of a WebSocket frame": handshake_request() + encode_frame(TEXT, frames.connect())[:9],
    "a WebSocket session": handshake_request()
    + encode_frame(TEXT, frames.connect() + frames.subscribe("/topic/resets", "0") + frames.send("/topic/resets", "x")),
    "a health check": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.fixture
def own_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that no other test uses, so that its descriptors can be counted."""
    return start_broker()


def test_descriptors_are_closed_after_resets_at_every_stage(own_broker: BrokerProcess) -> None:
    with Wire(own_broker.port) as session:
        session.connect()
        session.subscribe("/topic/session")
        before = descriptors(own_broker.pid)
        stages = list(STAGES.values())
        for at in range(2000):
            wire = Wire(own_broker.port)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                wire.send(stages[at % len(stages)])
            wire.reset()
        eventually(lambda: descriptors(own_broker.pid) == before, "all descriptors are closed")
        session.send(frames.send("/topic/session", "still here"))
        session.expect_message("still here")


def test_descriptors_are_closed_when_clients_close_at_every_stage(own_broker: BrokerProcess) -> None:
    with Wire(own_broker.port) as session:
        session.connect()
        before = descriptors(own_broker.pid)
        for stage, sent in STAGES.items():
            for _ in range(10):
                with Wire(own_broker.port) as wire:
                    wire.send(sent)
            eventually(lambda: descriptors(own_broker.pid) == before, f"descriptors are closed after {stage}")
        session.barrier()


def test_resets_while_a_topic_is_busy_do_not_affect_other_subscribers(own_broker: BrokerProcess) -> None:
    """Deliveries to the slot of a connection that has just ended reach nobody else."""
    with Wire(own_broker.port) as publisher, Wire(own_broker.port) as steady:
        publisher.connect()
        steady.connect()
        steady.subscribe("/topic/resets")
        for at in range(500):
            wire = Wire(own_broker.port)
            wire.send(frames.connect(), frames.subscribe("/topic/resets", f"of-{at}"))
            publisher.send(frames.send("/topic/resets", f"{at}"))
            wire.reset()
        for at in range(500):
            steady.expect_message(f"{at}", subscription="0")
        steady.barrier(publisher)


# descriptors run out


@pytest.fixture
def scarce(start_broker: StartBroker) -> BrokerProcess:
    """A broker with 100 descriptors and a setting of 1,000 connections."""
    return start_broker(descriptors=100, max_connections=1000)


def open_many(port: int, count: int) -> list[socket.socket]:
    """Opens plain connections; the kernel completes them even when the broker can't accept any."""
    opened = []
    for _ in range(count):
        sock = socket.socket()
        sock.settimeout(5)
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            sock.connect(("127.0.0.1", port))
        opened.append(sock)
    return opened


def test_exhausted_descriptors_end_no_connection_and_new_ones_are_accepted_later(scarce: BrokerProcess) -> None:
    with Wire(scarce.port) as early:
        early.connect()
        early.subscribe("/topic/early")
        extra = open_many(scarce.port, 150)
        for at in range(20):
            early.send(frames.send("/topic/early", f"{at}"))
            early.expect_message(f"{at}")
        for sock in extra:
            sock.close()
        with Wire(scarce.port) as late:
            late.connect()
            late.send_and_wait("/topic/early", "from the late one")
        early.expect_message("from the late one")


def test_exhausted_descriptors_do_not_cause_a_busy_loop(scarce: BrokerProcess) -> None:
    """The listener stays readable then; the broker must not poll it in a loop."""
    with Wire(scarce.port) as early:
        early.connect()
        extra = open_many(scarce.port, 150)
        early.barrier()
        before = cpu_seconds(scarce.pid)
        early.sock.settimeout(1)
        with contextlib.suppress(TimeoutError):
            early.sock.recv(1)
        used = cpu_seconds(scarce.pid) - before
        assert used < 0.5, f"{used:.2f} s of CPU in one idle second"
        for sock in extra:
            sock.close()


def cpu_seconds(pid: int) -> float:
    """Returns the user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_broker_whose_descriptors_ran_out_five_times_accepts_connections(scarce: BrokerProcess) -> None:
    for _ in range(5):
        for sock in open_many(scarce.port, 150):
            sock.close()
    with Wire(scarce.port) as late:
        late.connect()
        late.barrier()


# max_connections


@pytest.fixture
def full(start_broker: StartBroker) -> Iterator[tuple[BrokerProcess, list[Wire]]]:
    """A broker with as many sessions as it accepts."""
    broker = start_broker(max_connections=8)
    sessions = [Wire(broker.port) for _ in range(8)]
    for session in sessions:
        session.connect()
    yield broker, sessions
    for session in sessions:
        session.discard()


Full = tuple[BrokerProcess, list[Wire]]


@pytest.mark.parametrize("version", frames.VERSIONS)
def test_one_stomp_connection_over_the_limit_gets_an_error(full: Full, version: str) -> None:
    with Wire(full[0].port) as late:
        late.send(frames.connect(None if version == "1.0" else version))
        late.expect_error("E-CONNECTIONS")


@pytest.mark.parametrize(
    "request_head", [b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", handshake_request()], ids=["health", "websocket"]
)
def test_one_http_connection_over_the_limit_gets_503(full: Full, request_head: bytes) -> None:
    with RawStream(full[0].port) as late:
        late.send(request_head)
        assert late.read_response().status == 503
        late.expect_eof()


def test_one_silent_connection_over_the_limit_is_closed(full: Full) -> None:
    with Wire(full[0].port) as late:
        received = late.frames_until_closed()
        assert [frame["code"] for frame in received] in ([], ["E-CONNECTIONS"])


def test_two_hundred_connections_over_the_limit_are_closed_and_the_others_served(full: Full) -> None:
    broker, sessions = full
    extra = open_many(broker.port, 200)
    sessions[0].barrier(sessions[1])
    for sock in extra:
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
        sock.close()
    sessions[2].barrier(sessions[3])


def test_a_new_session_may_replace_one_that_ended(full: Full) -> None:
    broker, sessions = full
    sessions[0].disconnect()
    sessions[1].reset()

    def accepted() -> bool:
        with Wire(broker.port) as late, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            late.send(frames.connect())
            return late.recv_frame().command == "CONNECTED"
        return False

    eventually(accepted, "a new session is accepted after one ended")


def test_websocket_sessions_count_towards_the_limit(start_broker: StartBroker) -> None:
    broker = start_broker(max_connections=2)
    with WebSocket.connected(broker.port), WebSocket.connected(broker.port), Wire(broker.port) as late:
        late.send(frames.connect())
        late.expect_error("E-CONNECTIONS")
