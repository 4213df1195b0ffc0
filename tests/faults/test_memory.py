"""Memory stays within `memory_limit`, whatever floods the broker (docs/behaviour.md, section 1)."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.probes import SMALL_BUFFER, flood, memory_kib
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import TEXT, WebSocket, encode_frame

RESIDENT_KIB_MAX = 320 << 10
"""What `memory_limit=256MiB` allows for the whole process."""
TIMEOUT_S = 15.0
"""Half of `publish_timeout`."""


@pytest.fixture
def limited(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker with `memory_limit=256MiB`, whose peak memory is checked at the end."""
    broker = start_broker(memory_limit="256MiB")
    yield broker
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= RESIDENT_KIB_MAX, f"peak {peak >> 10} MiB"
    assert_serves(broker)


def assert_serves(broker: BrokerProcess) -> None:
    """Checks that a new client is served."""
    with Wire(broker.port) as client:
        client.connect()
        client.subscribe("/topic/new")
        client.send_and_wait("/topic/other", "x")
        client.barrier()


def test_many_publishers_to_many_subscribers_that_never_read(limited: BrokerProcess) -> None:
    """16 outboxes of 32 MiB would take twice the limit: the broker acts on the largest ones before that."""
    slow = [Wire(limited.port, receive_buffer=SMALL_BUFFER) for _ in range(16)]
    for at, wire in enumerate(slow):
        wire.connect()
        wire.subscribe(f"/topic/own-{at}")
    with Wire(limited.port, timeout=30) as publisher:
        publisher.connect()
        for _ in range(10):
            for at in range(16):
                flood(publisher, f"/topic/own-{at}", 16, 256 << 10)
    for wire in slow:
        wire.discard()


def test_one_topic_to_many_subscribers_that_never_read(limited: BrokerProcess) -> None:
    slow = [Wire(limited.port, receive_buffer=SMALL_BUFFER) for _ in range(75)]
    for wire in slow:
        wire.connect()
        wire.subscribe("/topic/shared")
    with Wire(limited.port, timeout=30) as publisher:
        publisher.connect()
        flood(publisher, "/topic/shared", 20_000, 8192)
    for wire in slow:
        wire.discard()


def test_many_unfinished_frames(limited: BrokerProcess) -> None:
    """400 connections with an incomplete frame of 0.9 MiB each: the input of incomplete frames counts too."""
    unfinished = frames.send("/topic/a", b"x" * 900_000, content_length=1_000_000)[:-1]
    held = hold(limited, 200, unfinished) + hold_websockets(limited, 200, unfinished)
    for wire in held:
        wire.discard()


@pytest.mark.parametrize("silent", [0, 100])
def test_publishers_whose_frames_fill_the_memory_can_all_complete_them(limited: BrokerProcess, silent: int) -> None:
    """No frame is complete when memory gets short, so to pause all publishers would keep it short.

    Some publishers may send nothing more; the others can complete their frames nevertheless.
    """
    frame = frames.send("/topic/a", b"x" * 1_000_000, content_length=1_000_000, receipt="r")
    idle, held = ([connected(limited) for _ in range(count)] for count in (silent, 250 - silent))
    send_in_parallel({wire.sock: frame[:900_000] for wire in idle}, patience=0.2)
    unsent = send_in_parallel({wire.sock: frame[:900_000] for wire in held}, patience=0.2)
    unsent = send_in_parallel({sock: rest + frame[900_000:] for sock, rest in unsent.items()}, patience=TIMEOUT_S)
    left = sum(1 for rest in unsent.values() if rest)
    assert left == 0, f"no publisher could send for {TIMEOUT_S} s; {left} are waiting"
    for wire in held:
        wire.expect_receipt("r")
    for wire in [*idle, *held]:
        wire.discard()


def test_memory_of_consumed_messages_is_returned_to_the_system(start_broker: StartBroker) -> None:
    """Consumers on other threads free what a publisher's thread allocated; that thread may be idle by then."""
    broker = start_broker(memory_limit="1GiB")
    count, before = 40_000, memory_kib(broker.pid)
    with Wire(broker.port, timeout=TIMEOUT_S) as publisher:
        publisher.connect()
        flood(publisher, "/queue/many", count, 4096)
        assert memory_kib(broker.pid) - before > 100 << 10, "the queue does not hold the messages"
        with Wire(broker.port, timeout=TIMEOUT_S) as consumer:
            consumer.connect()
            consumer.subscribe("/queue/many")
            for _ in range(count):
                consumer.expect("MESSAGE")
        eventually(lambda: memory_kib(broker.pid) - before < 32 << 10, "the memory is returned", timeout=30)


def connected(broker: BrokerProcess) -> Wire:
    """Returns a new session."""
    wire = Wire(broker.port, timeout=TIMEOUT_S)
    wire.connect()
    return wire


def send_in_parallel(unsent: dict[socket.socket, bytes], *, patience: float) -> dict[socket.socket, bytes]:
    """Sends to all until all is sent, or until no socket takes bytes for `patience` seconds. Returns what is left."""
    with selectors.DefaultSelector() as ready:
        for sock in unsent:
            sock.settimeout(0)
            ready.register(sock, selectors.EVENT_WRITE)
        while ready.get_map() and (chosen := ready.select(timeout=patience)):
            for selected, _ in chosen:
                sock = cast(socket.socket, selected.fileobj)
                unsent[sock] = unsent[sock][sock.send(unsent[sock]) :]
                if not unsent[sock]:
                    ready.unregister(sock)
    return unsent


def hold(broker: BrokerProcess, count: int, data: bytes) -> list[Wire]:
    """Returns sessions that have sent as much of `data` as the broker took at once."""
    held = []
    for _ in range(count):
        wire = Wire(broker.port)
        wire.connect()
        push(wire.sock, data)
        held.append(wire)
    return held


def hold_websockets(broker: BrokerProcess, count: int, data: bytes) -> list[Wire]:
    """As `hold`, over WebSocket."""
    held: list[Wire] = []
    masked = encode_frame(TEXT, data)
    for _ in range(count):
        client = WebSocket.connected(broker.port)
        push(client.sock, masked)
        held.append(client)
    return held


def push(sock: socket.socket, data: bytes) -> None:
    """Sends until all is sent, or the peer stops reading for a moment."""
    sock.settimeout(0.05)
    with contextlib.suppress(TimeoutError):
        sock.sendall(data)


def test_many_publishers_of_big_bodies_at_once(start_broker: StartBroker) -> None:
    """Eight publishers of 8 MiB bodies to one topic with five readers: no SEND is refused, no message is lost.

    The allocator returns blocks of 8 MiB to the system some time after they were freed, so the peak may be higher than
    for small frames.
    """
    limited = start_broker(memory_limit="256MiB")
    rounds, size = 2, 8 << 20
    listeners = [Wire(limited.port, timeout=30) for _ in range(5)]
    for wire in listeners:
        wire.connect()
        wire.subscribe("/topic/big")
    publishers = [Wire(limited.port, timeout=30) for _ in range(8)]

    def publish(wire: Wire) -> None:
        wire.connect()
        for _ in range(rounds):
            wire.send_and_wait("/topic/big", b"x" * size)

    def listen(wire: Wire, got: list[int]) -> None:
        for _ in range(rounds * len(publishers)):
            got.append(len(wire.expect("MESSAGE").body))

    received: list[list[int]] = [[] for _ in listeners]
    threads = [threading.Thread(target=publish, args=(wire,), daemon=True) for wire in publishers]
    threads += [
        threading.Thread(target=listen, args=(wire, got), daemon=True)
        for wire, got in zip(listeners, received, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert [len(got) for got in received] == [rounds * len(publishers)] * len(listeners)
    assert all(length == size for got in received for length in got)
    for wire in [*listeners, *publishers]:
        wire.discard()
    peak = memory_kib(limited.pid, "VmHWM")
    assert peak <= 1.5 * RESIDENT_KIB_MAX, f"peak {peak >> 10} MiB"
    assert_serves(limited)


def test_many_subscriptions_with_long_names(limited: BrokerProcess) -> None:
    """One connection makes as many subscriptions as it may, and the last one works."""
    with Wire(limited.port) as client:
        client.connect()
        for first in range(0, 10_000, 1000):
            numbers = range(first, first + 1000)
            client.send(*(frames.subscribe(f"/topic/{'d' * 1000}/{at}", f"{at}") for at in numbers))
        client.send(frames.send(f"/topic/{'d' * 1000}/9999", "found"))
        client.expect_message("found", subscription="9999")
