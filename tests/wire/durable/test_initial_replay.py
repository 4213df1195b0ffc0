"""The messages a durable subscription kept follow the RECEIPT of the SUBSCRIBE that resumes it.

See docs/behaviour.md, section 6.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES
from tests.support.clients import Clients
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import fill, fresh, numbered
from tests.support.wire import Wire
from tests.support.ws import WebSocket

NUMBERS = numbered(20)


def resume(wire: Wire, topic: str, id: str, **headers: frames.HeaderValue) -> None:
    """Subscribes; the RECEIPT must be the next frame, and the kept messages must follow in order."""
    wire.send(frames.subscribe(topic, id, durable="true", receipt="resumed", **headers))
    wire.expect_receipt("resumed")
    for number in NUMBERS:
        wire.expect_message(number, subscription=id)


def durable_with_messages(client: Clients, topic: str) -> str:
    """Creates a durable subscription that has kept NUMBERS; returns its id."""
    id = fresh("durable")
    with client() as wire:
        wire.subscribe(topic, id, durable="true")
        wire.disconnect()
    fill(client(), topic, *NUMBERS)
    return id


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_comes_before_the_kept_messages(client: Clients, topic: str, version: str) -> None:
    """The name of a subscription decides on which shard it is at home, so several are tried."""
    for _ in range(8):
        with client(version) as wire:
            resume(wire, topic, durable_with_messages(client, topic))


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_the_receipt_comes_first_with_client_acknowledgement(
    client: Clients, topic: str, version: str, mode: str
) -> None:
    for _ in range(4):
        with client(version) as wire:
            resume(wire, topic, durable_with_messages(client, topic), ack=mode)


def test_the_receipt_comes_first_over_websocket(client: Clients, broker: BrokerProcess, topic: str) -> None:
    for _ in range(4):
        with WebSocket.connected(broker.port) as wire:
            resume(wire, topic, durable_with_messages(client, topic))


def test_kept_messages_come_without_a_receipt_request(client: Clients, topic: str) -> None:
    id = durable_with_messages(client, topic)
    wire = client()
    wire.send(frames.subscribe(topic, id, durable="true"))
    for number in NUMBERS:
        wire.expect_message(number, subscription=id)


def test_live_messages_follow_the_kept_ones(client: Clients, topic: str) -> None:
    id = durable_with_messages(client, topic)
    wire, publisher = client(), client()
    wire.send(frames.subscribe(topic, id, durable="true", receipt="resumed"))
    publisher.send_and_wait(topic, "live")
    wire.expect_receipt("resumed")
    for body in [*NUMBERS, "live"]:
        wire.expect_message(body, subscription=id)


def test_a_subscriber_that_leaves_at_once_loses_nothing(client: Clients, topic: str) -> None:
    """Its messages are not acknowledged, so they are requeued."""
    id = durable_with_messages(client, topic)
    for _ in range(5):
        wire = client()
        wire.send(
            frames.subscribe(topic, id, durable="true", ack="client", receipt="resumed"),
            frames.unsubscribe(id, receipt="left"),
        )
        wire.expect_receipt("resumed")
        while wire.recv_frame().header("receipt-id") != "left":
            pass
    with client() as wire:
        resume(wire, topic, id)
