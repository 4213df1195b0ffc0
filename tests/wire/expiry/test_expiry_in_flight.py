"""What expires where no timer can take it: in flight, out of credit, in a transaction: PRODUCT.md 7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import frames
from tests.support.acks import ack, ack_and_wait, nack
from tests.support.clients import Clients, StartBroker
from tests.support.clock import let_pass
from tests.support.frames import VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import dead_letters, left_in, take, unsubscribe_and_wait
from tests.support.wire import Wire

LIFE_MS = 1000
"""How long a message lives that is in flight when its life ends; it has to be delivered by then."""
INDIVIDUAL = "client-individual"


def unsubscribe(wire: Wire) -> None:
    """Gives back what is in flight."""
    assert unsubscribe_and_wait(wire, "s") == []


WAYS: dict[str, Callable[[Wire], None]] = {"unsubscribe": unsubscribe, **LOSSES}


@pytest.mark.parametrize("way", ["NACK", *WAYS])
def test_a_queue_message_that_is_returned_too_late_is_dead_lettered(
    client: Clients, quick: BrokerProcess, queue: str, way: str
) -> None:
    """Another consumer waits with credit, and gets what comes behind it."""
    wire, other, grave, clock = (client(to=quick) for _ in range(4))
    grave.subscribe(dead_letters(queue))
    wire.subscribe(queue, "s", ack=INDIVIDUAL)
    wire.send(frames.send(queue, "x", ttl=LIFE_MS))
    message = wire.expect_message("x")
    other.subscribe(queue, "s", ack=INDIVIDUAL)
    let_pass(clock, LIFE_MS)
    wire.barrier(clock)  # it is not taken from who works on it
    if way == "NACK":
        wire.send(nack(wire, message))
    else:
        WAYS[way](wire)
    grave.expect_message("x", dead_letter_reason="expired", original_destination=queue, delivery_count="1")
    if way in ("NACK", "unsubscribe"):
        wire.disconnect()
    clock.send(frames.send(queue, "end"))
    other.expect_message("end", redelivered=None)


def test_a_queue_message_that_expires_before_its_ack_timeout_is_dead_lettered(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(ack_timeout="2s", redelivery_delay="2ms")
    wire, other, grave = (client(to=broker) for _ in range(3))
    grave.subscribe(dead_letters(queue))
    wire.subscribe(queue, "s", ack=INDIVIDUAL)
    wire.send(frames.send(queue, "x", ttl=LIFE_MS))
    message = wire.expect_message("x")
    other.subscribe(queue, "s", ack=INDIVIDUAL)
    grave.expect_message("x", dead_letter_reason="expired", delivery_count="1")
    assert ack_and_wait(wire, message) == [], "a late ACK is a no-op"
    other.barrier(grave)


@pytest.mark.parametrize("way", ["NACK", *WAYS])
def test_a_worker_message_that_is_returned_too_late_is_dropped(
    client: Clients, quick: BrokerProcess, topic: str, way: str
) -> None:
    wire, other, clock = (client(to=quick) for _ in range(3))
    work = f"#{topic}"
    detector = LossDetector(wire, client(to=quick))
    wire.subscribe(work, "s", ack=INDIVIDUAL)
    clock.send(frames.send(work, "x", ttl=LIFE_MS))
    message = wire.expect_message("x")
    other.subscribe(work, "s", ack=INDIVIDUAL)
    let_pass(clock, LIFE_MS)
    if way == "NACK":
        wire.send(nack(wire, message))
        assert unsubscribe_and_wait(wire, "s") == []
    else:
        WAYS[way](wire)
        if way != "unsubscribe":
            detector.wait()
    let_pass(clock, 20)
    clock.send(frames.send(work, "end"))
    other.expect_message("end")
    assert left_in(clock, dead_letters(work)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_message_that_expires_while_it_waits_for_credit_is_dropped(
    client: Clients, topic: str, version: str
) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(topic, "s", ack="client", prefetch_count=1)
    publisher.send(frames.send(topic, "held"), frames.send(topic, "mortal", ttl=LIFE_MS), frames.send(topic, "lasting"))
    message = wire.expect_message("held")
    let_pass(publisher, LIFE_MS)
    wire.send(ack(wire, message))
    wire.expect_message("lasting")
    wire.barrier(publisher)
    assert left_in(publisher, dead_letters(topic)) == []


def test_a_topic_message_that_is_nacked_too_late_is_dropped(client: Clients, quick: BrokerProcess, topic: str) -> None:
    wire, publisher = client(to=quick), client(to=quick)
    wire.subscribe(topic, "s", ack="client")
    publisher.send(frames.send(topic, "x", ttl=LIFE_MS))
    message = wire.expect_message("x")
    let_pass(publisher, LIFE_MS)
    wire.send(nack(wire, message))
    let_pass(publisher, 20)
    wire.barrier(publisher)
    assert left_in(publisher, dead_letters(topic)) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_message_held_too_long_by_a_durable_subscriber_is_dropped(client: Clients, topic: str, loss: str) -> None:
    wire, publisher = client(), client()
    detector = LossDetector(wire, client())
    name = f"d{topic}"
    wire.subscribe(topic, name, durable="true", ack="client")
    publisher.send(frames.send(topic, "mortal", ttl=LIFE_MS), frames.send(topic, "lasting"))
    take(wire, "mortal", "lasting")
    let_pass(publisher, LIFE_MS)
    LOSSES[loss](wire)
    detector.wait()
    again = client()
    again.send(frames.subscribe(topic, name, durable="true"))
    again.expect_message("lasting", redelivered="true")
    again.barrier(publisher)
    again.send(frames.unsubscribe(name, durable="true", receipt="u"))
    again.expect_receipt("u")
    assert left_in(publisher, dead_letters(topic)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_that_expires_before_commit_is_not_delivered(
    client: Clients, topic: str, queue: str, version: str
) -> None:
    """A message's life begins with its SEND; the rest of the transaction takes effect."""
    wire, clock = client(version), client()
    listener, consumer, grave = client(), client(), client()
    listener.subscribe(topic)
    consumer.subscribe(queue)
    grave.subscribe(dead_letters(queue))
    wire.send(frames.begin("t"))
    for destination in (topic, queue):
        wire.send(frames.send(destination, "mortal", transaction="t", ttl=LIFE_MS))
        wire.send(frames.send(destination, "lasting", transaction="t", receipt=destination))
        wire.expect_receipt(destination)
    let_pass(clock, LIFE_MS)
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_receipt("c")
    listener.expect_message("lasting")
    consumer.expect_message("lasting")
    grave.expect_message("mortal", dead_letter_reason="expired", original_destination=queue)
    for each in (listener, consumer, grave):
        each.barrier(wire)
    assert left_in(clock, dead_letters(topic)) == []
