"""A 1.0 subscription without id is named by its destination, of every kind.

See docs/specification.md, items 56 and 58; docs/behaviour.md, sections 3 and 5.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients
from tests.support.queues import fresh

KINDS = {
    "topic": "/topic/NAME",
    "topics": "/topic/NAME/*",
    "queue": "/queue/NAME",
    "queues": "/queue/NAME/*",
    "worker topic": "#NAME",
    "worker topics": "#NAME/>",
    "temporary queue": "/temp-queue/NAME",
    "temporary queues": "/temp-queue/NAME/*",
    "temporary topic": "/temp-topic/NAME",
    "temporary topics": "/temp-topic/NAME/*",
    "diagnostics": "DIAG/NAME",
    "monitor": "/queue/monitor",
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
EACH_MODE = pytest.mark.parametrize("mode", ["auto", "client"])


@pytest.fixture
def name() -> str:
    """A name that was not used before."""
    return fresh("nameless")


@EACH_KIND
@EACH_MODE
def test_the_same_destination_twice_is_a_duplicate(client: Clients, name: str, kind: str, mode: str) -> None:
    wire, other = client("1.0"), client("1.0")
    destination = KINDS[kind].replace("NAME", name)
    for each in (other, wire):
        each.subscribe(destination, None, ack=mode)
    wire.send(frames.subscribe(destination, None, ack=mode, receipt="r"))
    wire.expect_error("E-SUB-DUPLICATE", receipt_id="r")
    other.barrier()


@EACH_KIND
@EACH_MODE
def test_unsubscribe_by_destination_frees_the_name(client: Clients, name: str, kind: str, mode: str) -> None:
    wire = client("1.0")
    destination = KINDS[kind].replace("NAME", name)
    for _ in range(2):
        wire.subscribe(destination, None, ack=mode)
        wire.send(frames.unsubscribe(None, destination=destination, receipt="u"))
        wire.expect_receipt("u")
    wire.send(frames.unsubscribe(None, destination=destination, receipt="u"))
    wire.expect_error("E-SUB-UNKNOWN", receipt_id="u")


@EACH_MODE
@pytest.mark.parametrize("kind", ["topic", "queue", "worker topic", "temporary queue", "temporary topic"])
def test_messages_carry_the_destination_until_unsubscribe(client: Clients, name: str, kind: str, mode: str) -> None:
    wire = client("1.0")
    destination = KINDS[kind].replace("NAME", name)
    wire.subscribe(destination, None, ack=mode)
    for number in range(3):
        wire.send(frames.send(destination, str(number)))
        message = wire.expect_message(str(number), destination=destination, subscription=None)
        if mode == "client":
            assert ack_and_wait(wire, message) == []
    wire.send(frames.unsubscribe(None, destination=destination, receipt="u"))
    wire.expect_receipt("u")
    wire.send_and_wait(destination, "after")
    wire.barrier()


@EACH_KIND
def test_subscriptions_with_and_without_id_are_separate(client: Clients, name: str, kind: str) -> None:
    """Each ends on its own."""
    wire = client("1.0")
    destination = KINDS[kind].replace("NAME", name)
    wire.subscribe(destination, None)
    wire.subscribe(destination, "named")
    for sent in (
        frames.unsubscribe("named", receipt="u"),
        frames.unsubscribe(None, destination=destination, receipt="u"),
    ):
        wire.send(sent)
        wire.expect_receipt("u")
    wire.barrier()
