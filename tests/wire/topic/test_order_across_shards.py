"""Order, and deliveries between shards: docs/behaviour.md, section 5.

The embedded broker tells the shard of each connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import stompica
from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.wire import Wire

SHARDS = 4


@pytest.fixture
def embedded() -> Iterator[stompica.Broker]:
    """A broker of four shards inside this process."""
    with stompica.Broker(writers=SHARDS) as broker:
        yield broker


@pytest.fixture
def wires() -> Iterator[list[Wire]]:
    """Collects the clients of a test; closes them at its end."""
    made: list[Wire] = []
    yield made
    for wire in made:
        wire.discard()


def on_every_shard(broker: stompica.Broker, wires: list[Wire], version: str = "1.2", each: int = 1) -> list[list[Wire]]:
    """Connected clients by shard, at least `each` for every shard."""
    found: list[list[Wire]] = [[] for _ in range(SHARDS)]
    for _ in range(64):
        wire = Wire(broker.port)
        wires.append(wire)
        wire.connect(version)
        shards = {connection.peer[1]: connection.shard for connection in broker.connections()}
        found[shards[wire.local_port]].append(wire)
        if min(len(row) for row in found) >= each:
            return found
    pytest.fail(f"64 connections did not reach every shard: {[len(row) for row in found]}")


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_reach_subscribers_on_other_shards(embedded: stompica.Broker, wires: list[Wire], version: str) -> None:
    rows = on_every_shard(embedded, wires, version)
    publisher, subscriber, second = rows[0][0], rows[1][0], rows[2][0]
    shards = {connection.peer[1]: connection.shard for connection in embedded.connections()}
    assert len({shards[wire.local_port] for wire in (publisher, subscriber, second)}) == 3
    subscriber.subscribe("/topic/a", "exact")
    second.subscribe("/topic/*", "wild")
    publisher.send(*(frames.send("/topic/a", str(number)) for number in range(1000)))
    for number in range(1000):
        subscriber.expect_message(str(number), subscription="exact")
        second.expect_message(str(number), subscription="wild")
    subscriber.send(frames.unsubscribe("exact", receipt="u"))
    subscriber.expect_receipt("u")
    publisher.send(frames.send("/topic/a", "after"))
    second.expect_message("after")
    subscriber.barrier(publisher)


def test_every_shard_reaches_every_other(embedded: stompica.Broker, wires: list[Wire]) -> None:
    rows = on_every_shard(embedded, wires)
    clients = [row[0] for row in rows]
    for wire in clients:
        wire.subscribe("/topic/all")
    for source, publisher in enumerate(clients):
        publisher.send(*(frames.send("/topic/all", f"{source}:{number}") for number in range(200)))
    for wire in clients:
        got = [wire.expect_message().text for _ in range(200 * SHARDS)]
        for source in range(SHARDS):
            assert [body for body in got if body.startswith(f"{source}:")] == [f"{source}:{n}" for n in range(200)]


def test_settle_returns_when_all_messages_are_delivered(embedded: stompica.Broker, wires: list[Wire]) -> None:
    rows = on_every_shard(embedded, wires)
    publisher, subscriber = rows[3][0], rows[1][0]
    subscriber.subscribe("/topic/a")
    publisher.send(*(frames.send("/topic/a", str(number)) for number in range(500)), frames.begin("t", receipt="r"))
    publisher.expect_receipt("r")
    assert embedded.settle(60)
    subscriber.sock.settimeout(subscriber.timeout)
    for number in range(500):
        subscriber.expect_message(str(number))
    subscriber.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        subscriber.sock.recv(1)


def test_a_receipted_subscription_is_known_on_every_shard(embedded: stompica.Broker, wires: list[Wire]) -> None:
    rows = on_every_shard(embedded, wires)
    for round_ in range(50):
        subscriber, publisher = rows[round_ % SHARDS][0], rows[(round_ + 1 + round_ // SHARDS) % SHARDS][0]
        topic = f"/topic/round-{round_}"
        subscriber.subscribe(topic, topic)
        publisher.send(frames.send(topic, "x"))
        subscriber.expect_message("x", subscription=topic)


def test_a_subscription_gets_no_message_that_was_receipted_before(embedded: stompica.Broker, wires: list[Wire]) -> None:
    """A message that another shard mailed before the SUBSCRIBE must not be routed to it, even if the mail is unread."""
    rows = on_every_shard(embedded, wires)
    publisher, subscriber = rows[0][0], rows[1][0]
    subscriber.subscribe("/topic/early/#", "all")
    for round_ in range(1000):
        topic = f"/topic/early/{round_}"
        publisher.send_and_wait(topic, "before")
        subscriber.send(frames.subscribe(topic, topic, receipt=topic))
        answers = [subscriber.recv_frame(), subscriber.recv_frame()]
        got = {(frame.command, frame.header("subscription")) for frame in answers}
        assert got == {("MESSAGE", "all"), ("RECEIPT", None)}, f"round {round_}: {answers}"


@pytest.mark.parametrize("kill", [False, True], ids=["disconnect", "reset"])
def test_the_end_of_a_connection_is_known_on_every_shard(
    embedded: stompica.Broker, wires: list[Wire], kill: bool
) -> None:
    rows = on_every_shard(embedded, wires)
    stays, publisher = rows[0][0], rows[1][0]
    stays.subscribe("/topic/a")
    for round_ in range(20):
        wire = Wire(embedded.port)
        wires.append(wire)
        wire.connect("1.2")
        wire.subscribe("/topic/a")
        if kill:
            wire.reset()
        else:
            wire.disconnect()
        publisher.send(frames.send("/topic/a", str(round_)))
        stays.expect_message(str(round_))
    stays.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_order_of_one_publisher_holds_across_destinations(client: Clients, topic: str, version: str) -> None:
    wire, publisher = client(version), client(version)
    for number in range(7):
        wire.subscribe(f"{topic}/{number}", str(number))
    publisher.send(*(frames.send(f"{topic}/{number * 5 % 7}", str(number)) for number in range(3000)))
    for number in range(3000):
        wire.expect_message(str(number), subscription=str(number * 5 % 7))
    wire.barrier(publisher)


def test_the_order_of_each_publisher_holds_at_each_subscriber(client: Clients, topic: str) -> None:
    publishers, subscribers = [client() for _ in range(6)], [client(VERSIONS[at % 3]) for at in range(6)]
    for at, wire in enumerate(subscribers):
        wire.subscribe(topic if at % 2 else f"{topic}/#")

    def publish(source: int) -> None:
        for start in range(0, 500, 50):
            publishers[source].send(*(frames.send(topic, f"{source}:{at}") for at in range(start, start + 50)))

    threads = [threading.Thread(target=publish, args=(source,)) for source in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wire in subscribers:
        got = [wire.expect_message().text for _ in range(3000)]
        for source in range(6):
            assert [body for body in got if body.startswith(f"{source}:")] == [f"{source}:{at}" for at in range(500)]
        wire.barrier(publishers[0])


def test_small_and_large_messages_keep_their_order(client: Clients, topic: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(topic)
    sizes = [1, 300_000, 2, 255, 256, 257, 65_536, 3, 1_000_000, 4, 511, 512, 513] * 3
    publisher.send(*(frames.send_counted(topic, bytes([65 + at % 26]) * size) for at, size in enumerate(sizes)))
    for at, size in enumerate(sizes):
        wire.expect_message(bytes([65 + at % 26]) * size)


def test_a_subscriber_that_reads_late_loses_nothing(client: Clients, topic: str) -> None:
    """8 MB wait in the broker while nobody reads; then all of it arrives in order."""
    wire = client.raw(receive_buffer=4096)
    wire.connect("1.2")
    publisher = client()
    wire.subscribe(topic)
    publisher.send(*(frames.send(topic, f"{number:06d}" + "x" * 1000) for number in range(8000)))
    publisher.send(frames.begin("t", receipt="r"))
    publisher.expect_receipt("r")
    for number in range(8000):
        assert wire.expect_message().text.startswith(f"{number:06d}x")
    wire.barrier(publisher)


def test_a_full_mailbox_blocks_publishers_and_loses_nothing(
    client: Clients, start_broker: StartBroker, topic: str
) -> None:
    """One frame for each mailbox: every turn of the publisher's shard waits until the others have room again."""
    broker = start_broker(writers=4, max_input_queue_size=4)
    subscribers = [client(to=broker) for _ in range(4)]
    for wire in subscribers:
        wire.subscribe(topic)
    publisher = client(to=broker)
    publisher.send(*(frames.send(topic, str(number)) for number in range(5000)), frames.begin("t", receipt="r"))
    for wire in subscribers:
        for number in range(5000):
            wire.expect_message(str(number))
    publisher.expect_receipt("r")
