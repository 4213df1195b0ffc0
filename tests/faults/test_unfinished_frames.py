"""Frames that come in part: what they may hold, and for how long (`frame_timeout`, a quarter of `memory_limit`)."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.faults.probes import memory_kib
from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import TEXT, WebSocket, encode_frame

LIMIT = 64 << 20
"""The `memory_limit` of these brokers."""
PATIENCE_S = 15.0
"""Half of `publish_timeout`."""


def announced(length: int, *, came: int = 0, receipt: str | None = None) -> bytes:
    """The beginning of a SEND whose body is to have `length` bytes, with `came` of them."""
    head = [("destination", "/topic/a"), ("content-length", str(length))]
    if receipt is not None:
        head.append(("receipt", receipt))
    return frames.frame("SEND", *head)[:-1] + b"x" * came


@pytest.fixture
def limited(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(memory_limit=LIMIT)


def test_what_is_announced_is_not_held(limited: BrokerProcess, client: Clients) -> None:
    """280 announcements of 1 MB each, and nobody else has to wait."""
    for _ in range(280):
        client(to=limited).send(announced(1_000_000))
    before_kib = memory_kib(limited.pid)
    publisher = client(to=limited, timeout=PATIENCE_S)
    publisher.send_and_wait("/topic/other", b"y" * 1_000_000)
    publisher.send_and_wait("/queue/other", b"y" * 1_000_000)
    assert memory_kib(limited.pid) - before_kib < LIMIT >> 12


def test_what_came_of_frames_takes_a_quarter_of_the_memory_and_others_go_on(
    limited: BrokerProcess, client: Clients
) -> None:
    """Frames that stay incomplete would hold 150 MB, more than twice the limit."""
    before_kib = memory_kib(limited.pid)
    stalled = [client(to=limited) for _ in range(150)]
    for wire in stalled:
        wire.sock.settimeout(0.02)
        with contextlib.suppress(TimeoutError, ConnectionError):
            wire.sock.sendall(announced(2_000_000, came=1_000_000))
    publisher = client(to=limited, timeout=PATIENCE_S)
    for size in (10, 100_000, 1_000_000):
        publisher.send_and_wait("/topic/other", b"y" * size)
        publisher.send_and_wait("/queue/other", b"y" * size)
    assert memory_kib(limited.pid) - before_kib < LIMIT >> 10


def test_a_frame_that_is_not_complete_in_time_is_an_error(shared_broker: StartBroker, client: Clients) -> None:
    broker = shared_broker(frame_timeout="300ms")
    wire = client(to=broker)
    wire.send(announced(100, came=10, receipt="r"))
    error = wire.expect_error("E-FRAME-TIMEOUT", receipt_id="r")
    assert "frame_timeout" in error.text


def test_a_frame_has_a_second_more_for_each_64_kib(shared_broker: StartBroker, client: Clients) -> None:
    broker = shared_broker(frame_timeout="100ms")
    wire = client(to=broker)
    began = time.monotonic()
    wire.send(announced(128 << 10, came=10))
    wire.expect_error("E-FRAME-TIMEOUT")
    assert time.monotonic() - began > 2.0


def test_a_slow_and_steady_sender_passes(shared_broker: StartBroker, client: Clients) -> None:
    """Its frame takes longer than `frame_timeout` alone would allow."""
    broker = shared_broker(frame_timeout="2s")
    wire = client(to=broker)
    frame = announced(256 << 10, came=256 << 10, receipt="r") + b"\0"
    for at in range(0, len(frame), len(frame) // 8 + 1):
        wire.send(frame[at : at + len(frame) // 8 + 1])
        time.sleep(0.3)
    wire.expect_receipt("r")


def test_frames_that_follow_each_other_have_their_own_time(shared_broker: StartBroker, client: Clients) -> None:
    """At no moment is everything complete, and no frame takes long."""
    broker = shared_broker(frame_timeout="2s")
    wire = client(to=broker)
    frame = frames.send("/topic/a", "x")
    wire.send(frame[:5])
    for _ in range(10):
        wire.send(frame[5:], frame[:5])
        time.sleep(0.25)
    wire.send(frame[5:])
    wire.barrier()


def test_line_ends_between_frames_are_no_frame(shared_broker: StartBroker, client: Clients) -> None:
    broker = shared_broker(frame_timeout="200ms")
    wire = client(to=broker)
    wire.send(b"\n\r\n\r")
    time.sleep(0.5)
    wire.send(b"\n")
    wire.barrier()


@pytest.mark.parametrize("what", ["frame", "message"])
def test_a_websocket_message_that_is_not_complete_in_time_is_an_error(shared_broker: StartBroker, what: str) -> None:
    broker = shared_broker(frame_timeout="300ms")
    with WebSocket.connected(broker.port) as client:
        if what == "frame":
            client.sock.sendall(encode_frame(TEXT, frames.send("/topic/a", "x" * 50))[:-20])
        else:
            client.sock.sendall(encode_frame(TEXT, frames.send("/topic/a", "x"), fin=False))
        *_, error = client.frames_until_closed()
        assert (error.command, error["code"]) == ("ERROR", "E-FRAME-TIMEOUT")
        assert client.closed is not None and client.closed.code == 1008


def test_who_sends_at_once_does_not_wait_for_those_that_trickle(start_broker: StartBroker, client: Clients) -> None:
    """20 that say a byte every 8 ms of 1 MB; together they hold a tenth of the memory. Each had a second for itself."""
    broker = start_broker(memory_limit=8 << 20, writers=1, heartbeat="0,0")
    tricklers = [client(to=broker) for _ in range(20)]
    for wire in tricklers:
        wire.send(announced(1_000_000, came=40_000))
    publisher = client(to=broker)
    sending = threading.Thread(target=publisher.send_and_wait, args=("/topic/other", b"y" * 100_000))
    sending.start()
    said = 0
    while sending.is_alive() and said < 2500:
        for wire in tricklers:
            wire.send(b"x")
        said += 1
        time.sleep(0.008)
    sending.join()
    assert said < 400, "bytes of each trickler came before the publisher's RECEIPT"


def test_acks_behind_a_large_send_are_read_while_memory_is_short(start_broker: StartBroker, client: Clients) -> None:
    """Who holds deliveries is read on: what it acknowledges is what makes room."""
    broker = start_broker(memory_limit=LIMIT, publish_timeout="60s")
    worker = client(to=broker, timeout=PATIENCE_S)
    worker.subscribe("/queue/jobs", "0", ack="client-individual")
    worker.send(frames.send("/queue/jobs", "job"))
    job = worker.expect("MESSAGE")
    with Wire(broker.port) as publisher:
        publisher.connect()
        publisher.sock.settimeout(1)
        backlog = frames.send_counted("/queue/backlog", b"x" * 100_000)
        with contextlib.suppress(TimeoutError):
            publisher.sock.sendall(backlog * (LIMIT // len(backlog)))
        worker.send(frames.send_counted("/topic/large", b"y" * 1_000_000, receipt="large"))
        worker.send(frames.ack(id=job["ack"], receipt="acknowledged"))
        worker.expect_receipt("large")
        worker.expect_receipt("acknowledged")
