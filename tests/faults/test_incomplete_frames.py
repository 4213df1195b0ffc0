"""Incomplete frames: how much memory they may hold, and for how long (`frame_timeout`, a quarter of `memory_limit`)."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.probes import memory_kib
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import TEXT, WebSocket, encode_frame

LIMIT = 64 << 20
"""The `memory_limit` of these brokers."""
TIMEOUT_S = 15.0
"""Half of `publish_timeout`."""


def partial_send(length: int, *, came: int = 0, receipt: str | None = None) -> bytes:
    """Returns the beginning of a SEND whose body has `length` bytes, with the first `came` bytes of the body."""
    head = [("destination", "/topic/a"), ("content-length", str(length))]
    if receipt is not None:
        head.append(("receipt", receipt))
    return frames.frame("SEND", *head)[:-1] + b"x" * came


@pytest.fixture
def limited(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(memory_limit=LIMIT)


def test_announced_bytes_are_not_counted_as_held(limited: BrokerProcess, client: Clients) -> None:
    """280 frames announce 1 MB each, and no other client has to wait."""
    for _ in range(280):
        client(to=limited).send(partial_send(1_000_000))
    before_kib = memory_kib(limited.pid)
    publisher = client(to=limited, timeout=TIMEOUT_S)
    publisher.send_and_wait("/topic/other", b"y" * 1_000_000)
    publisher.send_and_wait("/queue/other", b"y" * 1_000_000)
    assert memory_kib(limited.pid) - before_kib < LIMIT >> 12


def test_incomplete_frames_take_a_quarter_of_the_memory_and_others_are_served(
    limited: BrokerProcess, client: Clients
) -> None:
    """The incomplete frames would take 150 MB, more than twice the limit."""
    before_kib = memory_kib(limited.pid)
    stalled = [client(to=limited) for _ in range(150)]
    for wire in stalled:
        wire.sock.settimeout(0.02)
        with contextlib.suppress(TimeoutError, ConnectionError):
            wire.sock.sendall(partial_send(2_000_000, came=1_000_000))
    publisher = client(to=limited, timeout=TIMEOUT_S)
    for size in (10, 100_000, 1_000_000):
        publisher.send_and_wait("/topic/other", b"y" * size)
        publisher.send_and_wait("/queue/other", b"y" * size)
    assert memory_kib(limited.pid) - before_kib < LIMIT >> 10


def test_a_frame_that_is_not_complete_in_time_is_an_error(shared_broker: StartBroker, client: Clients) -> None:
    broker = shared_broker(frame_timeout="300ms")
    wire = client(to=broker)
    wire.send(partial_send(100, came=10, receipt="r"))
    error = wire.expect_error("E-FRAME-TIMEOUT", receipt_id="r")
    assert "frame_timeout" in error.text


def test_a_frame_gets_one_more_second_for_each_64_kib(shared_broker: StartBroker, client: Clients) -> None:
    broker = shared_broker(frame_timeout="100ms")
    wire = client(to=broker)
    began = time.monotonic()
    wire.send(partial_send(128 << 10, came=10))
    wire.expect_error("E-FRAME-TIMEOUT")
    assert time.monotonic() - began > 2.0


def test_a_slow_but_steady_sender_does_not_time_out(shared_broker: StartBroker, client: Clients) -> None:
    """Its frame takes longer than `frame_timeout` alone would allow."""
    broker = shared_broker(frame_timeout="2s")
    wire = client(to=broker)
    frame = partial_send(256 << 10, came=256 << 10, receipt="r") + b"\0"
    for at in range(0, len(frame), len(frame) // 8 + 1):
        wire.send(frame[at : at + len(frame) // 8 + 1])
        time.sleep(0.3)
    wire.expect_receipt("r")


def test_each_of_several_frames_in_a_row_has_its_own_timeout(shared_broker: StartBroker, client: Clients) -> None:
    """The input is never complete at any moment, but no single frame takes long."""
    broker = shared_broker(frame_timeout="2s")
    wire = client(to=broker)
    frame = frames.send("/topic/a", "x")
    wire.send(frame[:5])
    for _ in range(10):
        wire.send(frame[5:], frame[:5])
        time.sleep(0.25)
    wire.send(frame[5:])
    wire.barrier()


def test_line_ends_between_frames_do_not_start_the_timeout(shared_broker: StartBroker, client: Clients) -> None:
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


def test_a_publisher_does_not_wait_for_clients_that_send_slowly(start_broker: StartBroker, client: Clients) -> None:
    """20 clients send a byte of 1 MB every 8 ms, and hold a tenth of the memory; each started one second ago."""
    broker = start_broker(memory_limit=8 << 20, writers=1, heartbeat="0,0")
    slow_clients = [client(to=broker) for _ in range(20)]
    for wire in slow_clients:
        wire.send(partial_send(1_000_000, came=40_000))
    publisher = client(to=broker)
    sending = threading.Thread(target=publisher.send_and_wait, args=("/topic/other", b"y" * 100_000))
    sending.start()
    sent = 0
    while sending.is_alive() and sent < 2500:
        for wire in slow_clients:
            wire.send(b"x")
        sent += 1
        time.sleep(0.008)
    sending.join()
    assert sent < 400, "bytes of each slow client were read before the publisher's RECEIPT"


def test_acks_behind_a_large_send_are_read_while_memory_is_short(start_broker: StartBroker, client: Clients) -> None:
    """The broker goes on reading from clients that hold deliveries: their ACKs free memory."""
    broker = start_broker(memory_limit=LIMIT, publish_timeout="60s")
    worker = client(to=broker, timeout=TIMEOUT_S)
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
