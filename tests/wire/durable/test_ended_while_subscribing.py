"""A durable subscription that ends before its SUBSCRIBE is answered: every receipt still comes."""

from __future__ import annotations

import json

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.queues import fresh
from tests.support.waiting import eventually
from tests.support.wire import Wire

DURABLE = {"durable": "true"}


def clients_of(requester: Wire) -> int:
    """How many connections the broker has."""
    requester.send(frames.frame("DIAG", body="session"))
    return int(json.loads(requester.expect("DIAG")["session"])["clients"])


@pytest.mark.parametrize("attempt", range(5))
def test_all_receipts_come_in_order(client: Clients, topic: str, attempt: int) -> None:
    wire, name = client(), fresh("d")
    wire.send(
        frames.subscribe(topic, name, receipt="subscribed", **DURABLE),
        frames.unsubscribe(name, receipt="ended", **DURABLE),
        frames.subscribe(topic, name, receipt="again", **DURABLE),
        frames.send(topic + "-other", "x", receipt="sent"),
    )
    for receipt in ("subscribed", "ended", "again", "sent"):
        wire.expect_receipt(receipt)


def test_disconnect_is_answered_last(client: Clients, topic: str) -> None:
    wire, name = client(), fresh("d")
    wire.send(
        frames.subscribe(topic, name, receipt="subscribed", **DURABLE),
        frames.unsubscribe(name, receipt="ended", **DURABLE),
        frames.disconnect(receipt="bye"),
    )
    for receipt in ("subscribed", "ended", "bye"):
        wire.expect_receipt(receipt)
    wire.expect_closed()


def test_another_holder_may_end_the_subscription(client: Clients, topic: str) -> None:
    one, other, name = client(), client(), fresh("d")
    one.send(frames.subscribe(topic, name, receipt="one", **DURABLE))
    other.send(
        frames.subscribe(topic, name, receipt="other", **DURABLE), frames.unsubscribe(name, receipt="ended", **DURABLE)
    )
    one.expect_receipt("one")
    other.expect_receipt("other")
    other.expect_receipt("ended")


def test_another_topic_is_refused_after_the_first_is_answered(client: Clients, topic: str) -> None:
    wire, name = client(), fresh("d")
    wire.send(
        frames.subscribe(topic, name, receipt="first", **DURABLE),
        frames.unsubscribe(name),
        frames.subscribe(topic + "-other", name, receipt="second", **DURABLE),
        frames.subscribe(topic, name + "-b", receipt="third", **DURABLE),
    )
    wire.expect_receipt("first")
    wire.expect_error("E-DURABLE-OTHER", "E-SUB-UNKNOWN", receipt_id="second")


def test_nothing_remains_of_clients_that_left(start_broker: StartBroker, client: Clients, writers: int) -> None:
    broker = start_broker(writers=writers)
    requester = client(to=broker)
    before = clients_of(requester)
    for _ in range(30):
        with Wire(broker.port) as wire:
            wire.connect()
            name = fresh("d")
            wire.send(
                frames.subscribe("/topic/a", name, receipt="subscribed", **DURABLE),
                frames.unsubscribe(name, receipt="ended", **DURABLE),
            )
    eventually(lambda: clients_of(requester) == before, "all of them are disconnected")
    assert broker.alive
