"""C stompica's worker topics, TTL and reconnecting listeners: every message is delivered once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

TTL_MS = 600_000
CONNECTIONS = 800
MANY = 1000
WORKERS = 10
RECONNECTS = 100


@pytest.fixture
def held(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that keeps messages without subscribers."""
    return shared_broker(compat="stompica", TTL=TTL_MS)


# TTL


def test_ttl_keeps_a_message_for_one_later_subscriber(client: Clients, held: BrokerProcess, name: str) -> None:
    """800 connections send, each to its own destination; then each subscribes to that of the next one."""
    wires = [client(to=held, timeout=30) for _ in range(CONNECTIONS)]
    for number, wire in enumerate(wires):
        wire.send(frames.send(f"/q/{name}/{number}", f"hello {number}", receipt="sent"))
    for wire in wires:
        wire.expect_receipt("sent")
    for number, wire in enumerate(wires):
        wire.send(frames.subscribe(f"/q/{name}/{(number + 1) % CONNECTIONS}", receipt="subscribed"))
    for number, wire in enumerate(wires):
        wire.expect_message(f"hello {(number + 1) % CONNECTIONS}")
        wire.expect_receipt("subscribed")


def test_ttl_keeps_a_message_for_its_own_sender(client: Clients, held: BrokerProcess, name: str) -> None:
    """SEND and SUBSCRIBE in one write: the subscription gets the message that was sent before it."""
    wires = [client(to=held, timeout=30) for _ in range(100)]
    for number, wire in enumerate(wires):
        wire.send(frames.send(f"/q/{name}/own/{number}", "x"), frames.subscribe(f"/q/{name}/own/{number}"))
    for number, wire in enumerate(wires):
        wire.expect_message("x", destination=f"/q/{name}/own/{number}")


def many_to_one(client: Clients, broker: BrokerProcess, destination: str, pause_s: float) -> None:
    """1,000 SENDs from ten connections, then a subscriber: it gets every message once, in each publisher's order."""
    publishers = [client(to=broker, timeout=30) for _ in range(10)]
    for at, wire in enumerate(publishers):
        bodies = [f"{at} {number}" for number in range(MANY // 10)]
        wire.send(*(frames.send(destination, body) for body in bodies[:-1]))
        wire.send_and_wait(destination, bodies[-1])
    threading.Event().wait(pause_s)
    subscriber = client(to=broker, timeout=30)
    subscriber.send(frames.subscribe(destination, receipt="subscribed"))
    following = [0] * len(publishers)
    for _ in range(MANY):
        at, number = map(int, subscriber.expect("MESSAGE").text.split())
        assert number == following[at]
        following[at] += 1
    subscriber.expect_receipt("subscribed")
    late = client(to=broker)
    late.subscribe(destination)
    late.barrier()


def test_ttl_keeps_messages_of_many_publishers_for_one_subscriber(
    client: Clients, held: BrokerProcess, name: str
) -> None:
    many_to_one(client, held, f"/q/{name}", 0)


@pytest.fixture
def two_writers() -> Iterator[BrokerProcess]:
    """A broker of the test's own that is started once, so that the test waits five seconds only once."""
    with BrokerProcess(compat="stompica", TTL=10_000, writers=2) as broker:
        yield broker


def test_ttl_keeps_messages_of_many_publishers_for_five_seconds(two_writers: BrokerProcess) -> None:
    """Five seconds are the delay of C stompica's own test."""
    clients = Clients(two_writers)
    try:
        many_to_one(clients, two_writers, "/q/five/seconds", 5)
    finally:
        clients.close()


# worker topics


def test_ten_workers_share_the_load(client: Clients, compat: BrokerProcess, name: str) -> None:
    """Each of 1,000 messages goes to one worker, and each worker gets a tenth of them."""
    workers, publisher = [client(to=compat) for _ in range(WORKERS)], client(to=compat)
    for wire in workers:
        wire.subscribe(f"#{name}")
    publisher.send(*(frames.send(f"#{name}", str(number)) for number in range(MANY)))
    parts = [[int(wire.expect("MESSAGE").text) for _ in range(MANY // WORKERS)] for wire in workers]
    assert sorted(number for part in parts for number in part) == list(range(MANY))
    assert all(part == sorted(part) for part in parts)
    for wire in workers:
        wire.barrier(publisher)


def test_ten_workers_share_every_destination_of_a_pattern(client: Clients, compat: BrokerProcess, name: str) -> None:
    """The load is balanced per destination: the messages of each of ten destinations go to all ten workers in turn."""
    workers, publisher = [client(to=compat) for _ in range(WORKERS)], client(to=compat)
    for wire in workers:
        wire.subscribe(f"#{name}/*")
    for number in range(MANY):
        publisher.send(frames.send(f"#{name}/{number % 10}", str(number)))
    got: list[Counter[str]] = []
    bodies: list[int] = []
    for wire in workers:
        messages = [wire.expect("MESSAGE") for _ in range(MANY // WORKERS)]
        got.append(Counter(message["destination"] for message in messages))
        bodies += [int(message.text) for message in messages]
    assert sorted(bodies) == list(range(MANY))
    assert all(part == {f"#{name}/{at}": WORKERS for at in range(10)} for part in got), got


def test_workers_that_subscribe_late_get_the_waiting_messages(client: Clients, held: BrokerProcess, name: str) -> None:
    """With TTL, a worker topic keeps its messages for the first worker; then all workers share new ones."""
    publisher = client(to=held)
    publisher.send(*(frames.send(f"#{name}", str(number)) for number in range(50)))
    publisher.send_and_wait(f"#{name}", "50")
    first, second = client(to=held), client(to=held)
    first.send(frames.subscribe(f"#{name}", receipt="subscribed"))
    for number in range(51):
        first.expect_message(str(number))
    first.expect_receipt("subscribed")
    second.subscribe(f"#{name}")
    publisher.send(*(frames.send(f"#{name}", "new") for _ in range(10)))
    for wire in (first, second):
        for _ in range(5):
            wire.expect_message("new")
        wire.barrier(publisher)


# reconnecting listeners


def test_a_listener_that_reconnects_a_hundred_times_gets_what_came_meanwhile(
    client: Clients, held: BrokerProcess, name: str
) -> None:
    publisher = client(to=held)
    for number in range(RECONNECTS):
        publisher.send_and_wait(f"/q/{name}", str(number))
        with Wire(held.port) as listener:
            listener.connect()
            listener.send(frames.subscribe(f"/q/{name}", receipt="subscribed"))
            listener.expect_message(str(number))
            listener.expect_receipt("subscribed")
            listener.disconnect()


@pytest.mark.parametrize("prefix", ["/q/", "#"])
def test_a_listener_that_reconnects_a_hundred_times_gets_what_is_sent_while_it_is_connected(
    client: Clients, compat: BrokerProcess, name: str, prefix: str
) -> None:
    """Half of the times it leaves by DISCONNECT, half by a lost connection; nothing of it remains."""
    publisher, destination = client(to=compat), prefix + name
    for number in range(RECONNECTS):
        listener = client(to=compat)
        listener.subscribe(destination)
        publisher.send(frames.send(destination, str(number)))
        listener.expect_message(str(number))
        listener.barrier(publisher)
        if number % 2:
            listener.disconnect()
        else:
            listener.send(frames.unsubscribe(receipt="gone"))
            listener.expect_receipt("gone")
            listener.reset()
