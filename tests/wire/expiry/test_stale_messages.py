"""TTL: messages without subscriber wait as stale messages; docs/behaviour.md, sections 1, 5 and 7."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.clock import wait_ms
from tests.support.expiry import EXPIRY_HEADERS, lifetime
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import (
    bodies,
    fill,
    left_in,
    numbered,
    take,
    unsubscribe_and_wait,
    until_receipt,
)
from tests.support.wire import Wire

NUMBERS = numbered(10)


def subscribed(wire: Wire, destination: str, id: str = "0", **headers: frames.HeaderValue) -> list[str]:
    """Subscribes; returns the bodies of the messages before the RECEIPT."""
    wire.send(frames.subscribe(destination, id, receipt=f"subscribed {id}", **headers))
    return bodies(until_receipt(wire, f"subscribed {id}"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_without_subscriber_is_dropped_without_ttl(client: Clients, topic: str, version: str) -> None:
    publisher, wire = client(version), client(version)
    publisher.send_and_wait(topic, "gone")
    publisher.send_and_wait(topic, "gone", ttl=100_000)
    wire.subscribe(topic)
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_subscriber_gets_stale_messages_before_its_receipt(
    client: Clients, holding: BrokerProcess, topic: str, version: str
) -> None:
    publisher, first, second = (client(version, to=holding) for _ in range(3))
    fill(publisher, topic, *NUMBERS)
    assert subscribed(first, topic) == NUMBERS
    assert subscribed(second, topic) == []
    publisher.send(frames.send(topic, "live"))
    for wire in (first, second):
        wire.expect_message("live")
        wire.barrier(publisher)


def test_a_stale_message_is_delivered_like_any_other(client: Clients, holding: BrokerProcess, topic: str) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("content-type", "text/x")]
    publisher.send_and_wait(topic, b"\0body\0", *pairs)
    wire.send(frames.subscribe(topic, "s", ack="client"))
    message = wire.expect_message(b"\0body\0", destination=topic, subscription="s", redelivered=None)
    assert [pair for pair in message.headers if pair in pairs] == pairs
    wire.send(frames.ack(id=message["ack"], receipt="r"))
    assert until_receipt(wire, "r") == []


def test_each_stale_message_is_delivered_once(client: Clients, holding: BrokerProcess, topic: str) -> None:
    """The first subscription that matches it gets it; the others stay."""
    publisher = client(to=holding)
    for name in ("a/1", "a/2", "b/1", "b/2"):
        publisher.send_and_wait(f"{topic}/{name}", name)
    wires = [client(to=holding) for _ in range(5)]
    expected = {"/a/1": ["a/1"], "/a/*": ["a/2"], "/c": [], "/*/1": ["b/1"], "/>": ["b/2"]}
    for wire, (pattern, names) in zip(wires, expected.items(), strict=True):
        assert subscribed(wire, topic + pattern) == names


@pytest.mark.parametrize("pattern", ["/*", "/>", "/**", "/#", "/a*"])
def test_a_pattern_gets_stale_messages_of_many_destinations(
    client: Clients, holding: BrokerProcess, topic: str, pattern: str
) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    names = [f"a{number}" for number in range(20)]
    for part in range(3):
        for name in names:
            publisher.send_and_wait(f"{topic}/{name}", f"{name} {part}")
    found = subscribed(wire, topic + pattern)
    assert len(found) == 60
    for name in names:
        assert [body for body in found if body.startswith(f"{name} ")] == [f"{name} {part}" for part in range(3)]


def test_a_stale_message_goes_to_one_of_two_subscriptions_of_a_connection(
    client: Clients, holding: BrokerProcess, topic: str
) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    fill(publisher, topic, *NUMBERS)
    wire.send(frames.subscribe(topic, "a", receipt="a"), frames.subscribe(topic, "b", receipt="b"))
    found = until_receipt(wire, "a")
    assert (bodies(found), {message["subscription"] for message in found}) == (NUMBERS, {"a"})
    wire.expect_receipt("b")


def test_a_websocket_gets_stale_messages(
    client: Clients, ws: OpenWebSocket, holding: BrokerProcess, topic: str
) -> None:
    fill(client(to=holding), topic, *NUMBERS)
    assert subscribed(ws(to=holding), topic) == NUMBERS


def test_a_message_with_a_subscriber_does_not_become_stale(client: Clients, holding: BrokerProcess, topic: str) -> None:
    publisher, first, second = (client(to=holding) for _ in range(3))
    first.subscribe(topic)
    fill(publisher, topic, *NUMBERS)
    take(first, *NUMBERS)
    assert subscribed(second, topic) == []


def test_messages_become_stale_after_the_last_subscriber_left(
    client: Clients, holding: BrokerProcess, topic: str
) -> None:
    publisher, first, second = (client(to=holding) for _ in range(3))
    first.subscribe(topic)
    assert unsubscribe_and_wait(first, "0") == []
    fill(publisher, topic, *NUMBERS)
    assert subscribed(second, topic) == NUMBERS


def test_a_subscriber_that_joins_a_stream_misses_no_message(
    client: Clients, holding: BrokerProcess, topic: str
) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    numbers = numbered(3000)
    for number in numbers[:1500]:
        publisher.send(frames.send(topic, number))
    wire.send(frames.subscribe(topic, receipt="r"))
    for number in numbers[1500:]:
        publisher.send(frames.send(topic, number))
    found = bodies(until_receipt(wire, "r"))
    found += [wire.expect_message().text for _ in range(len(numbers) - len(found))]
    assert found == numbers


def test_a_new_durable_subscriber_gets_stale_messages_before_its_receipt(
    client: Clients, holding: BrokerProcess, topic: str
) -> None:
    publisher, wire, late = (client(to=holding) for _ in range(3))
    fill(publisher, topic, *NUMBERS)
    assert subscribed(wire, topic, f"d{topic}", durable="true") == NUMBERS
    assert unsubscribe_and_wait(wire, f"d{topic}") == []
    fill(publisher, topic, "kept for the durable one, so it does not wait for others")
    assert subscribed(late, topic) == []
    wire.send(frames.unsubscribe(f"d{topic}", durable="true"))


def test_a_full_stale_store_drops_the_oldest(client: Clients, shared_broker: StartBroker, topic: str) -> None:
    broker = shared_broker(TTL="1h", max_stale_queue_size=10)
    publisher, wire = client(to=broker), client(to=broker)
    fill(publisher, topic, *(str(number) for number in range(25)))
    assert subscribed(wire, topic) == [str(number) for number in range(15, 25)]


def test_the_stale_store_has_one_limit_over_all_destinations(
    client: Clients, shared_broker: StartBroker, topic: str
) -> None:
    broker = shared_broker(TTL="1h", max_stale_queue_size=10)
    publisher, wire = client(to=broker), client(to=broker)
    for number in range(25):
        publisher.send_and_wait(f"{topic}/{number}", str(number))
        # Every home answers a SUBSCRIBE: the message has reached its home before the next one is sent to another.
        publisher.subscribe(f"{topic}-fence", "fence")
        assert unsubscribe_and_wait(publisher, "fence") == []
    assert sorted(subscribed(wire, f"{topic}/*"), key=int) == [str(number) for number in range(15, 25)]


def test_a_stale_message_older_than_ttl_is_dropped(client: Clients, brief: BrokerProcess, topic: str) -> None:
    publisher, wire = client(to=brief), client(to=brief)
    fill(publisher, topic, *NUMBERS)
    wait_ms(publisher, 150)
    assert subscribed(wire, topic) == []
    wire.barrier(publisher)


def test_ttl_runs_from_the_arrival_of_each_message(client: Clients, shared_broker: StartBroker, topic: str) -> None:
    broker = shared_broker(TTL=2000)
    publisher, wire = client(to=broker), client(to=broker)
    publisher.send_and_wait(topic, "old")
    wait_ms(publisher, 1900)
    publisher.send_and_wait(topic, "new")
    wait_ms(publisher, 200)
    assert subscribed(wire, topic) == ["new"]


def test_ttl_does_not_apply_to_queues(client: Clients, brief: BrokerProcess, queue: str) -> None:
    publisher, wire = client(to=brief), client(to=brief)
    fill(publisher, queue, *NUMBERS)
    wait_ms(publisher, 300)
    assert bodies(left_in(wire, queue)) == NUMBERS


def test_each_stale_topic_message_has_its_own_lifetime(client: Clients, holding: BrokerProcess, topic: str) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    for number in range(9):
        header = EXPIRY_HEADERS[number % 3]
        publisher.send_and_wait(topic, str(number), lifetime(header, (100, 100_000)[number % 2]))
    wait_ms(publisher, 200)
    assert subscribed(wire, topic) == ["1", "3", "5", "7"]


def test_each_stale_worker_message_has_its_own_lifetime(client: Clients, holding: BrokerProcess, topic: str) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    for number in range(6):
        publisher.send_and_wait(f"#{topic}", str(number), ttl=(100, 100_000)[number % 2])
    wait_ms(publisher, 200)
    assert subscribed(wire, f"#{topic}") == ["1", "3", "5"]


def test_a_lifetime_longer_than_ttl_is_cut_to_it(client: Clients, brief: BrokerProcess, topic: str) -> None:
    publisher, wire = client(to=brief), client(to=brief)
    publisher.send_and_wait(topic, "x", ttl=100_000)
    wait_ms(publisher, 200)
    assert subscribed(wire, topic) == []


def test_an_expired_stale_message_is_not_dead_lettered(client: Clients, brief: BrokerProcess, topic: str) -> None:
    publisher, wire = client(to=brief), client(to=brief)
    publisher.send_and_wait(topic, "x", ttl=10)
    publisher.send_and_wait(topic, "y")
    wait_ms(publisher, 200)
    assert left_in(wire, f"/queue/dlq{topic}") == []
