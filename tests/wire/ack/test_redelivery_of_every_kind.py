"""Redelivery and dead letters of worker topics, durable subscriptions and temporary queues.

See docs/behaviour.md, sections 5 and 7.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait, nack, nack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.frames import ESCAPING
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import fresh
from tests.support.wire import Wire

INDIVIDUAL = "client-individual"


@pytest.fixture
def hasty(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with a short ack_timeout and two deliveries at most."""
    return shared_broker(ack_timeout="1500ms", redelivery_delay="2ms", max_deliveries=2)


def take_twice(wire: Wire, subscription: str, body: str) -> None:
    """Takes the message twice and acknowledges neither delivery."""
    wire.expect_message(body, subscription=subscription, redelivered=None)
    wire.expect_message(body, subscription=subscription, redelivered="true", delivery_count="2")


# -- worker topics -------------------------------------------------------------------------------------------------


def test_a_message_a_worker_did_not_acknowledge_in_time_goes_to_another(
    client: Clients, shared_broker: StartBroker, topic: str
) -> None:
    broker = shared_broker(ack_timeout="1500ms", redelivery_delay="2ms", max_deliveries=1000)
    first, second, publisher = (client(to=broker) for _ in range(3))
    work = f"#{topic}"
    first.subscribe(work, "s", ack=INDIVIDUAL)
    publisher.send(frames.send(work, "x"))
    late = first.expect_message("x", redelivered=None)
    second.subscribe(work, "s", ack=INDIVIDUAL)
    again = second.expect_message("x", redelivered="true", delivery_count="2")
    assert ack_and_wait(second, again) == []
    assert ack_and_wait(first, late) == [], "a late ACK is a no-op"
    publisher.disconnect()


def test_a_lone_worker_gets_a_message_again_before_it_is_dead_lettered(
    client: Clients, hasty: BrokerProcess, topic: str
) -> None:
    wire, dlq = client(to=hasty), client(to=hasty)
    work = f"#{topic}"
    dlq.subscribe(f"/queue/dlq/{work}")
    wire.subscribe(work, "s", ack=INDIVIDUAL)
    wire.send(frames.send(work, "x"))
    take_twice(wire, "s", "x")
    dlq.expect_message("x", original_destination=work, dead_letter_reason="max-deliveries", delivery_count="2")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("number", [1, 2, 5])
def test_nacked_worker_messages_keep_their_destinations(
    client: Clients, shared_broker: StartBroker, topic: str, version: str, number: int
) -> None:
    """Each is redelivered under its own destination, although one pattern got them all."""
    broker = shared_broker(redelivery_delay="2ms")
    wire, publisher = client(version, to=broker), client(to=broker)
    wire.subscribe(f"#{topic}/*", "s", ack=INDIVIDUAL)
    names = {f"#{topic}/{each}" for each in range(number)}
    publisher.send(*(frames.send(name, name) for name in sorted(names)))
    messages = [wire.expect_message() for _ in names]
    again = nack_and_wait(wire, *messages)
    again += [wire.expect_message() for _ in range(number - len(again))]
    assert {message.text for message in again} == names
    for message in again:
        assert (message["destination"], message["delivery-count"]) == (message.text, "2")
    assert ack_and_wait(wire, *again) == []


# -- durable subscriptions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["", "/*"])
@pytest.mark.parametrize("way", ["NACK", "ack_timeout"])
def test_a_message_a_durable_subscriber_fails_is_a_dead_letter_of_the_topic(
    client: Clients, hasty: BrokerProcess, topic: str, pattern: str, way: str
) -> None:
    """Other messages arrive; the dead-letter queue is named after the destination, not the pattern."""
    wire, publisher, dlq, other = (client(to=hasty) for _ in range(4))
    destination = f"{topic}/a" if pattern else topic
    name = f"d{topic}{pattern}"
    dlq.subscribe(f"/queue/dlq{destination}")
    other.subscribe(destination)
    wire.subscribe(topic + pattern, name, durable="true", ack=INDIVIDUAL)
    publisher.send(frames.send(destination, "x"))
    other.expect_message("x")
    if way == "NACK":
        for count in (None, "2"):
            wire.send(nack(wire, wire.expect_message("x", delivery_count=count)))
    else:
        take_twice(wire, name, "x")
    dlq.expect_message("x", original_destination=destination, dead_letter_reason="max-deliveries")
    publisher.send(frames.send(destination, "next"))
    message = wire.expect_message("next", subscription=name)
    assert ack_and_wait(wire, message) == []
    other.expect_message("next")
    wire.send(frames.unsubscribe(name, durable="true", receipt="u"))
    wire.expect_receipt("u")


# -- temporary destinations ----------------------------------------------------------------------------------------


def test_a_message_nacked_by_the_owner_of_a_temporary_queue_is_redelivered(
    client: Clients, shared_broker: StartBroker
) -> None:
    owner = client(to=shared_broker(redelivery_delay="2ms"))
    owner.subscribe("/temp-queue/x", "t", ack=INDIVIDUAL)
    owner.send(frames.send("/temp-queue/x", "reply"))
    owner.send(nack(owner, owner.expect_message("reply", redelivered=None)))
    again = owner.expect_message("reply", destination="/temp-queue/x", redelivered="true", delivery_count="2")
    assert ack_and_wait(owner, again) == []


def create_queues(client: Clients, broker: BrokerProcess) -> int:
    """Creates queues until the broker refuses one; returns how many."""
    wire, made = client(to=broker), 0
    while True:
        wire.send(frames.send(f"/queue/{fresh('made')}", "x", receipt="r"))
        if (frame := wire.recv_frame()).command == "ERROR":
            assert (frame["code"], frame["receipt-id"]) == ("E-DEST-COUNT", "r")
            return made
        made += 1


@pytest.mark.parametrize("loss", LOSSES)
def test_temporary_queues_count_as_destinations_while_their_owner_lives(
    client: Clients, start_broker: StartBroker, loss: str
) -> None:
    broker = start_broker(max_destinations=LossDetector.QUEUES + 20)
    owner, other = client(to=broker), client(to=broker)
    detector = LossDetector(owner, other)
    for number in range(4):
        owner.subscribe(f"/temp-queue/{number}", str(number))
    assert 0 < create_queues(client, broker) <= 16
    refused = client(to=broker)
    refused.send(frames.subscribe("/temp-queue/one-more", receipt="r"))
    refused.expect_error("E-DEST-COUNT", receipt_id="r")
    LOSSES[loss](owner)
    detector.wait()
    assert create_queues(client, broker) >= 4


@pytest.mark.parametrize("value", ["", "nonsense", "block", "block:", "block:soon", "drop"])
def test_an_unknown_slow_consumer_policy_is_an_error(client: Clients, topic: str, value: str) -> None:
    wire = client()
    wire.send(frames.subscribe(topic, slow_consumer=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
