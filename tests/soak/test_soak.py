"""Long runs: what shows only after minutes, or only with thousands of connections."""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.probes import SMALL_BUFFER, descriptors, flood, memory_kib
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import PING, PONG, WebSocket

SUBSCRIBERS = 5000
"""The subscribers of the flooded topic."""
MEMORY_RUN_S = 60
CHURN = 20_000


def test_idle_websocket_without_heart_beats_is_pinged(start_broker: StartBroker) -> None:
    """Once a minute; otherwise proxies would close the connection of a browser without heart-beats."""
    broker = start_broker()
    with WebSocket.connected(broker.port, heart_beat="0,0") as client:
        for _ in range(2):
            frame = client.recv_ws(timeout=90)
            assert frame.opcode == PING, frame
            client.send_frame(PONG, frame.payload)
        client.barrier()


def read_and_discard(port: int, count: int, ready: Event, stop: Event) -> None:
    """Runs in a process of its own: `count` subscribers of one topic, whose input is read and discarded."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        wire = Wire(port, timeout=30)
        wire.connect()
        wire.subscribe("/topic/flood")
        wire.sock.setblocking(False)
        selector.register(wire.sock, selectors.EVENT_READ)
    ready.set()
    while not stop.is_set():
        for key, _ in selector.select(0.2):
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                key.fileobj.recv(1 << 18)  # type: ignore[union-attr]


def publish_forever(port: int, stop: Event) -> None:
    """Runs in a process of its own: publishes to the topic as fast as the broker takes it."""
    with Wire(port, timeout=30) as wire:
        wire.connect()
        block = b"".join(frames.send_counted("/topic/flood", "." * 117) for _ in range(50))
        while not stop.is_set():
            wire.send(block)


def test_pair_beside_a_flooded_topic_with_five_thousand_subscribers(
    start_broker: StartBroker, record_property: Callable[[str, object], None]
) -> None:
    """Measures the round trips of a pair of clients; the figure is recorded and is no condition of this test.

    The readers are in Python and share the machine with the broker, so the figure is an upper bound.
    """
    broker = start_broker()
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    readers = context.Process(target=read_and_discard, args=(broker.port, SUBSCRIBERS, ready, stop), daemon=True)
    publisher = context.Process(target=publish_forever, args=(broker.port, stop), daemon=True)
    with Wire(broker.port, timeout=30) as near, Wire(broker.port, timeout=30) as far:
        for wire in (near, far):
            wire.connect()
        near.subscribe("/topic/to-near")
        far.subscribe("/topic/to-far")
        readers.start()
        assert ready.wait(120)
        publisher.start()
        trips_ms = [round_trip_ms(near, far, at) for at in range(2000)]
        stop.set()
        publisher.join(30)
        readers.join(30)
    trips_ms.sort()
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)):
        value = trips_ms[min(len(trips_ms) - 1, int(len(trips_ms) * share))]
        record_property(name, f"{value:.2f}")
        print(f"pair beside a flood of {SUBSCRIBERS} subscribers: {name} {value:.2f}")


def round_trip_ms(near: Wire, far: Wire, at: int) -> float:
    """Sends one message there and one back; returns the time."""
    began = time.perf_counter()
    near.send(frames.send("/topic/to-far", f"{at}"))
    far.expect_message(f"{at}")
    far.send(frames.send("/topic/to-near", f"{at}"))
    near.expect_message(f"{at}")
    return (time.perf_counter() - began) * 1000


def test_memory_stays_bounded_for_a_minute_of_floods(start_broker: StartBroker) -> None:
    """Slow readers connect, are cut off and connect again, beside an endless flood."""
    broker = start_broker(memory_limit="256MiB", slow_consumer="block:1s")
    end = time.monotonic() + MEMORY_RUN_S
    with Wire(broker.port, timeout=30) as publisher:
        publisher.connect()
        while time.monotonic() < end:
            slow = [Wire(broker.port, receive_buffer=SMALL_BUFFER) for _ in range(12)]
            for at, wire in enumerate(slow):
                wire.connect()
                wire.subscribe(f"/topic/own-{at}")
            for at in range(12):
                flood(publisher, f"/topic/own-{at}", 4000, 8192)
            for wire in slow:
                wire.reset()
    peak = memory_kib(broker.pid, "VmHWM")
    assert peak <= 320 << 10, f"peak {peak >> 10} MiB"


def test_churn_leaves_nothing_behind(start_broker: StartBroker) -> None:
    """Each connection subscribes, gets one message and ends: memory does not grow in the second half of the test."""
    broker = start_broker()

    def rounds(count: int) -> None:
        for at in range(count):
            with Wire(broker.port) as wire:
                wire.send(
                    frames.connect(), frames.subscribe(f"/topic/{at}", "0"), frames.send(f"/topic/{at}", "x" * 1000)
                )
                wire.expect("CONNECTED")
                wire.expect("MESSAGE")

    before = descriptors(broker.pid)
    rounds(CHURN // 2)
    half = memory_kib(broker.pid)
    rounds(CHURN // 2)
    eventually(lambda: descriptors(broker.pid) == before, "all descriptors are closed")
    assert memory_kib(broker.pid) <= half + 4096, "the memory grew by more than 4 MiB"


def test_thousand_websockets_with_heart_beats_stay_connected(start_broker: StartBroker) -> None:
    """Each sends a heart-beat once a second for half a minute; no connection is lost."""
    broker = start_broker(heartbeat="1000,1000")
    clients = [WebSocket.connected(broker.port, heart_beat="1000,0") for _ in range(1000)]
    tick = threading.Event()
    for _ in range(60):
        tick.wait(0.5)
        for client in clients:
            client.send(b"\n")
    for client in clients:
        client.barrier()
        client.close()
