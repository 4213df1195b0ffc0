"""Messages that expire in flight, while they wait for credit, or in a transaction: docs/behaviour.md, section 7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import frames
from tests.support.acks import ack, ack_and_wait, nack
from tests.support.clients import Clients, StartBroker
from tests.support.clock import wait_ms
from tests.support.frames import VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import dead_letters, left_in, take, unsubscribe_and_wait
from tests.support.wire import Wire

TTL_MS = 1000
"""The time to live of a message that has to be delivered before it expires."""
INDIVIDUAL = "client-individual"


def unsubscribe(wire: Wire) -> None:
    """Returns the messages in flight."""
    assert unsubscribe_and_wait(wire, "s") == []


WAYS: dict[str, Callable[[Wire], None]] = {"unsubscribe": unsubscribe, **LOSSES}


@pytest.mark.parametrize("way", ["NACK", *WAYS])
def test_a_queue_message_that_is_returned_too_late_is_dead_lettered(
    client: Clients, quick: BrokerProcess, queue: str, way: str
) -> None:
    """Another consumer with credit gets only the message behind it."""
    wire, other, dlq, clock = (client(to=quick) for _ in range(4))
    dlq.subscribe(dead_letters(queue))
    wire.subscribe(queue, "s", ack=INDIVIDUAL)
    wire.send(frames.send(queue, "x", ttl=TTL_MS))
    message = wire.expect_message("x")
    other.subscribe(queue, "s", ack=INDIVIDUAL)
    wait_ms(clock, TTL_MS)
    wire.barrier(clock)  # it is not taken away from its consumer
    if way == "NACK":
        wire.send(nack(wire, message))
    else:
        WAYS[way](wire)
    dlq.expect_message("x", dead_letter_reason="expired", original_destination=queue, delivery_count="1")
    if way in ("NACK", "unsubscribe"):
        wire.disconnect()
    clock.send(frames.send(queue, "end"))
    other.expect_message("end", redelivered=None)


def test_a_queue_message_that_expires_before_its_ack_timeout_is_dead_lettered(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(ack_timeout="2s", redelivery_delay="2ms")
    wire, other, dlq = (client(to=broker) for _ in range(3))
    dlq.subscribe(dead_letters(queue))
    wire.subscribe(queue, "s", ack=INDIVIDUAL)
    wire.send(frames.send(queue, "x", ttl=TTL_MS))
    message = wire.expect_message("x")
    other.subscribe(queue, "s", ack=INDIVIDUAL)
    dlq.expect_message("x", dead_letter_reason="expired", delivery_count="1")
    assert ack_and_wait(wire, message) == [], "a late ACK is a no-op"
    other.barrier(dlq)


@pytest.mark.parametrize("way", ["NACK", *WAYS])
def test_a_worker_message_that_is_returned_too_late_is_dropped(
    client: Clients, quick: BrokerProcess, topic: str, way: str
) -> None:
    wire, other, clock = (client(to=quick) for _ in range(3))
    work = f"#{topic}"
    detector = LossDetector(wire, client(to=quick))
    wire.subscribe(work, "s", ack=INDIVIDUAL)
    clock.send(frames.send(work, "x", ttl=TTL_MS))
    message = wire.expect_message("x")
    other.subscribe(work, "s", ack=INDIVIDUAL)
    wait_ms(clock, TTL_MS)
    if way == "NACK":
        wire.send(nack(wire, message))
        assert unsubscribe_and_wait(wire, "s") == []
    else:
        WAYS[way](wire)
        if way != "unsubscribe":
            detector.wait()
    wait_ms(clock, 20)
    clock.send(frames.send(work, "end"))
    other.expect_message("end")
    assert left_in(clock, dead_letters(work)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_message_that_expires_while_it_waits_for_credit_is_dropped(
    client: Clients, topic: str, version: str
) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(topic, "s", ack="client", prefetch_count=1)
    publisher.send(
        frames.send(topic, "held"), frames.send(topic, "short-lived", ttl=TTL_MS), frames.send(topic, "long-lived")
    )
    message = wire.expect_message("held")
    wait_ms(publisher, TTL_MS)
    wire.send(ack(wire, message))
    wire.expect_message("long-lived")
    wire.barrier(publisher)
    assert left_in(publisher, dead_letters(topic)) == []


def test_a_topic_message_that_is_nacked_too_late_is_dropped(client: Clients, quick: BrokerProcess, topic: str) -> None:
    wire, publisher = client(to=quick), client(to=quick)
    wire.subscribe(topic, "s", ack="client")
    publisher.send(frames.send(topic, "x", ttl=TTL_MS))
    message = wire.expect_message("x")
    wait_ms(publisher, TTL_MS)
    wire.send(nack(wire, message))
    wait_ms(publisher, 20)
    wire.barrier(publisher)
    assert left_in(publisher, dead_letters(topic)) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_a_message_held_too_long_by_a_durable_subscriber_is_dropped(client: Clients, topic: str, loss: str) -> None:
    wire, publisher = client(), client()
    detector = LossDetector(wire, client())
    name = f"d{topic}"
    wire.subscribe(topic, name, durable="true", ack="client")
    publisher.send(frames.send(topic, "short-lived", ttl=TTL_MS), frames.send(topic, "long-lived"))
    take(wire, "short-lived", "long-lived")
    wait_ms(publisher, TTL_MS)
    LOSSES[loss](wire)
    detector.wait()
    again = client()
    again.send(frames.subscribe(topic, name, durable="true"))
    again.expect_message("long-lived", redelivered="true")
    again.barrier(publisher)
    again.send(frames.unsubscribe(name, durable="true", receipt="u"))
    again.expect_receipt("u")
    assert left_in(publisher, dead_letters(topic)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_that_expires_before_commit_is_not_delivered(
    client: Clients, topic: str, queue: str, version: str
) -> None:
    """The lifetime begins with the SEND; the rest of the transaction takes effect."""
    wire, clock = client(version), client()
    listener, consumer, dlq = client(), client(), client()
    listener.subscribe(topic)
    consumer.subscribe(queue)
    dlq.subscribe(dead_letters(queue))
    wire.send(frames.begin("t"))
    for destination in (topic, queue):
        wire.send(frames.send(destination, "short-lived", transaction="t", ttl=TTL_MS))
        wire.send(frames.send(destination, "long-lived", transaction="t", receipt=destination))
        wire.expect_receipt(destination)
    wait_ms(clock, TTL_MS)
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_receipt("c")
    listener.expect_message("long-lived")
    consumer.expect_message("long-lived")
    dlq.expect_message("short-lived", dead_letter_reason="expired", original_destination=queue)
    for each in (listener, consumer, dlq):
        each.barrier(wire)
    assert left_in(clock, dead_letters(topic)) == []
