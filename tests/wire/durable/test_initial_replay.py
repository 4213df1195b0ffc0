"""What a durable subscription kept follows the RECEIPT of the SUBSCRIBE that takes it up (PRODUCT.md, section 6)."""

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


def take_up(wire: Wire, topic: str, id: str, **headers: frames.HeaderValue) -> None:
    """SUBSCRIBE; its RECEIPT is the next frame, and then comes what was kept, in order."""
    wire.send(frames.subscribe(topic, id, durable="true", receipt="taken up", **headers))
    wire.expect_receipt("taken up")
    for number in NUMBERS:
        wire.expect_message(number, subscription=id)


def kept(client: Clients, topic: str) -> str:
    """A durable subscription that has kept NUMBERS; its id."""
    id = fresh("durable")
    with client() as wire:
        wire.subscribe(topic, id, durable="true")
        wire.disconnect()
    fill(client(), topic, *NUMBERS)
    return id


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_comes_before_the_kept_messages(client: Clients, topic: str, version: str) -> None:
    """Wherever its home is: the name of the subscription decides, so several are tried."""
    for _ in range(8):
        with client(version) as wire:
            take_up(wire, topic, kept(client, topic))


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_the_receipt_comes_first_with_client_acknowledgement(
    client: Clients, topic: str, version: str, mode: str
) -> None:
    for _ in range(4):
        with client(version) as wire:
            take_up(wire, topic, kept(client, topic), ack=mode)


def test_the_receipt_comes_first_over_websocket(client: Clients, broker: BrokerProcess, topic: str) -> None:
    for _ in range(4):
        with WebSocket.connected(broker.port) as wire:
            take_up(wire, topic, kept(client, topic))


def test_kept_messages_come_without_a_receipt_request(client: Clients, topic: str) -> None:
    id = kept(client, topic)
    wire = client()
    wire.send(frames.subscribe(topic, id, durable="true"))
    for number in NUMBERS:
        wire.expect_message(number, subscription=id)


def test_live_messages_follow_the_kept_ones(client: Clients, topic: str) -> None:
    id = kept(client, topic)
    wire, publisher = client(), client()
    wire.send(frames.subscribe(topic, id, durable="true", receipt="taken up"))
    publisher.send_and_wait(topic, "live")
    wire.expect_receipt("taken up")
    for body in [*NUMBERS, "live"]:
        wire.expect_message(body, subscription=id)


def test_a_subscriber_that_leaves_at_once_loses_nothing(client: Clients, topic: str) -> None:
    """With client acks, so that whatever came is given back."""
    id = kept(client, topic)
    for _ in range(5):
        wire = client()
        wire.send(
            frames.subscribe(topic, id, durable="true", ack="client", receipt="taken up"),
            frames.unsubscribe(id, receipt="left"),
        )
        wire.expect_receipt("taken up")
        while wire.recv_frame().header("receipt-id") != "left":
            pass
    with client() as wire:
        take_up(wire, topic, id)
