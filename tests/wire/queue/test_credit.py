"""The credit of a queue's consumers under its several header names: docs/behaviour.md, section 6."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack
from tests.support.clients import Clients, StartBroker
from tests.support.queues import NUMBERS, bodies, consumer, fill, numbered, shares, take

BY_COUNT = ["prefetch-count", "prefetch", "activemq.prefetchSize", "credit"]


BY_ANY = [*BY_COUNT, "consumer-window-size"]


@pytest.mark.parametrize("header", BY_COUNT)
@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_no_more_than_the_prefetch_count_is_in_flight(
    client: Clients, queue: str, version: str, mode: str, header: str
) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(queue, "0", (header, "3"), ack=mode)
    fill(publisher, queue, *NUMBERS[:10])
    first, second, _ = take(wire, "0", "1", "2")
    wire.barrier(publisher)
    wire.send(ack(wire, first))
    wire.expect_message("3")
    wire.barrier(publisher)
    wire.send(ack(wire, second))
    wire.expect_message("4")
    wire.barrier(publisher)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_consumer_window_counts_bytes(client: Clients, queue: str, topic: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(topic, "end")
    wire.subscribe(queue, ack=mode, consumer_window_size=3000)
    texts = [number.ljust(1000, ".") for number in NUMBERS[:8]]
    fill(publisher, queue, *texts)
    (messages,) = shares(publisher, [wire], topic, 3)
    assert len(messages) in (2, 3), "headers and the message that exceeds the window may count"
    assert bodies(messages) == texts[: len(messages)]
    wire.send(ack(wire, messages[0]))
    wire.expect_message(texts[len(messages)])
    wire.barrier(publisher)


@pytest.mark.parametrize("size", [0, 1])
def test_a_window_smaller_than_a_message_lets_one_through(client: Clients, queue: str, size: int) -> None:
    wire, publisher = client(), client()
    wire.subscribe(queue, ack="client", consumer_window_size=size)
    fill(publisher, queue, *NUMBERS[:5])
    for number in NUMBERS[:5]:
        message = wire.expect_message(number)
        wire.barrier(publisher)
        wire.send(ack(wire, message))


def test_a_thousand_messages_are_in_flight_by_default(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    numbers = numbered(1001)
    wire.subscribe(queue, ack="client")
    fill(publisher, queue, *numbers)
    messages = take(wire, *numbers[:1000])
    wire.barrier(publisher)
    wire.send(ack(wire, messages[0]))
    wire.expect_message("1000")


@pytest.mark.parametrize("header", BY_COUNT)
def test_prefetch_0_means_no_limit(client: Clients, queue: str, header: str) -> None:
    wire, publisher = client(), client()
    numbers = numbered(1500)
    wire.subscribe(queue, "0", (header, "0"), ack="client-individual")
    fill(publisher, queue, *numbers)
    take(wire, *numbers)


def test_a_window_of_minus_one_does_not_change_the_count(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    numbers = numbered(1001)
    wire.subscribe(queue, ack="client", consumer_window_size=-1)
    fill(publisher, queue, *numbers)
    take(wire, *numbers[:1000])
    wire.barrier(publisher)


@pytest.mark.parametrize(("credit", "count"), [("2,1000000", 2), ("100,1500", 2), ("1,1", 1)])
def test_credit_may_limit_messages_and_bytes(client: Clients, queue: str, credit: str, count: int) -> None:
    wire, publisher = client(), client()
    wire.subscribe(queue, ack="client", credit=credit)
    texts = [number.ljust(1000, ".") for number in NUMBERS[:8]]
    fill(publisher, queue, *texts)
    messages = take(wire, *texts[:count])
    wire.barrier(publisher)
    wire.send(ack(wire, messages[-1]))
    take(wire, *texts[count : 2 * count])
    wire.barrier(publisher)


def test_the_setting_prefetch_is_the_default(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(prefetch=5)
    few, many, publisher = client(to=broker), client(to=broker), client(to=broker)
    fill(publisher, queue, *NUMBERS)
    few.send(frames.subscribe(queue, ack="client"))
    take(few, *NUMBERS[:5])
    few.barrier(publisher)
    many.send(frames.subscribe(queue, ack="client", prefetch_count=7))
    take(many, *NUMBERS[5:12])
    many.barrier(publisher)


def test_auto_consumers_need_no_credit(client: Clients, queue: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(queue, ack="auto", prefetch_count=1)
    fill(publisher, queue, *NUMBERS)
    take(wire, *NUMBERS)


def test_a_consumer_without_credit_is_skipped(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, queue, topic, prefetch_count=count) for count in ("2", "5", "100")]
    publisher = client()
    fill(publisher, queue, *NUMBERS)
    found = shares(publisher, wires, topic, 40)
    assert [len(share) for share in found] == [2, 5, 33]
    assert sorted(int(message.text) for share in found for message in share) == list(range(40))
    for share in found:
        numbers = [int(message.text) for message in share]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("header", BY_ANY)
@pytest.mark.parametrize("value", ["x", "-2", "1.5", "0x10", "1 000", "99999999999999999999999"])
def test_a_prefetch_that_is_not_a_number_is_an_error(client: Clients, queue: str, header: str, value: str) -> None:
    wire = client()
    wire.send(frames.subscribe(queue, "0", (header, value), ack="client", receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
