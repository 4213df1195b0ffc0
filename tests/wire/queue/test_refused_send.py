"""A SEND that its queue refuses ends in an ERROR, whatever the queue's shard and whatever the client sends next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.queues import fresh
from tests.support.wire import Wire

QUEUES = 24
"""Their homes are on all shards, and so are the clients."""


@pytest.fixture
def full(shared_broker: StartBroker) -> BrokerProcess:
    """A broker whose queues take one message."""
    return shared_broker(max_queue_length=1)


def two_sends(queue: str, **headers: str) -> bytes:
    """Two SENDs, of which the second is refused."""
    return frames.send(queue, "x") + frames.send(queue, "y", **headers)


@pytest.fixture
def attempts(full: BrokerProcess, client: Clients) -> Iterator[tuple[Wire, str]]:
    """Pairs of a client and an empty queue."""
    return ((client(to=full), f"/queue/{fresh('q')}") for _ in range(QUEUES))


def test_the_error_replaces_the_receipt_of_disconnect(attempts: Iterator[tuple[Wire, str]]) -> None:
    for wire, queue in attempts:
        wire.send(two_sends(queue), frames.disconnect(receipt="bye"))
        wire.expect_error("E-QUEUE-FULL", receipt_id=None)


def test_the_error_comes_before_a_disconnect_without_receipt(attempts: Iterator[tuple[Wire, str]]) -> None:
    for wire, queue in attempts:
        wire.send(two_sends(queue), frames.disconnect())
        wire.expect_error("E-QUEUE-FULL")


def test_the_error_reaches_a_client_after_half_close(attempts: Iterator[tuple[Wire, str]]) -> None:
    for wire, queue in attempts:
        wire.send(two_sends(queue))
        wire.half_close()
        wire.expect_error("E-QUEUE-FULL")


def test_the_error_names_the_receipt_and_echoes_its_header(attempts: Iterator[tuple[Wire, str]]) -> None:
    for wire, queue in attempts:
        wire.send(two_sends(queue, receipt="r-1"), frames.disconnect(receipt="bye"))
        error = wire.expect_error("E-QUEUE-FULL", receipt_id="r-1")
        assert b"receipt:r-1\n" in error.body, error


def test_receipts_come_before_the_error_and_none_behind_it(attempts: Iterator[tuple[Wire, str]]) -> None:
    for wire, queue in attempts:
        wire.send(
            frames.send(queue, "x", receipt="first"),
            frames.send(queue, "y", receipt="refused"),
            frames.send(queue + "-b", "z", receipt="behind"),
            frames.disconnect(receipt="bye"),
        )
        wire.expect_receipt("first")
        wire.expect_error("E-QUEUE-FULL", receipt_id="refused")


def test_a_refused_subscription_ends_in_its_error(client: Clients, topic: str) -> None:
    holder = client("1.2", ("client-id", "me"))
    durable = {"activemq.subscriptionName": "held"}
    holder.subscribe(topic, "0", *durable.items())
    for _ in range(QUEUES // 2):
        other = client("1.2", ("client-id", "me"))
        other.send(frames.subscribe(topic, "0", *durable.items()), frames.disconnect(receipt="bye"))
        other.expect_error("E-DURABLE-IN-USE", subscription="0")
