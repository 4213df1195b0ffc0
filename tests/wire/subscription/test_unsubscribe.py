"""STOMP 1.2 "UNSUBSCRIBE"; docs/specification.md, items 58 and 59."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.queues import numbered
from tests.support.wire import Wire


@pytest.mark.parametrize("version", VERSIONS)
def test_no_message_comes_after_the_receipt(subscriber: Wire, publisher: Wire, topic: str) -> None:
    publisher.send(frames.send(topic, "x"))
    subscriber.expect_message("x")
    subscriber.send(frames.unsubscribe("0", receipt="u"))
    subscriber.expect_receipt("u")
    publisher.send(*(frames.send(topic, "not mine") for _ in range(10)))
    subscriber.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_message_comes_after_the_receipt_while_a_publisher_streams(
    subscriber: Wire, publisher: Wire, topic: str
) -> None:
    publisher.send(*(frames.send(topic, str(number)) for number in range(2000)))
    subscriber.send(frames.unsubscribe("0", receipt="u"))
    publisher.send(*(frames.send(topic, str(number)) for number in range(2000, 4000)))
    expected = 0
    while (frame := subscriber.recv_frame()).command == "MESSAGE":
        assert frame.text == str(expected)
        expected += 1
    assert (frame.command, frame["receipt-id"]) == ("RECEIPT", "u")
    subscriber.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_unsubscribe_takes_effect_before_the_next_frame(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(
        frames.subscribe(topic),
        frames.send(topic, "mine"),
        frames.unsubscribe(),
        frames.send(topic, "not mine"),
        frames.subscribe(topic, "1"),
        frames.send(topic, "mine again"),
    )
    wire.expect_message("mine", subscription="0")
    wire.expect_message("mine again", subscription="1")
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_other_subscriptions_are_kept(client: Clients, topic: str, version: str) -> None:
    wire, other, publisher = client(version), client(version), client(version)
    wire.subscribe(topic, "a")
    wire.subscribe(topic, "b")
    other.subscribe(topic, "a")
    wire.send(frames.unsubscribe("a", receipt="u"))
    wire.expect_receipt("u")
    publisher.send(frames.send(topic, "x"))
    wire.expect_message("x", subscription="b")
    other.expect_message("x", subscription="a")
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_id_can_be_used_again(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    for round_ in range(5):
        wire.subscribe(f"{topic}/{round_}", "same")
        wire.send(frames.send(f"{topic}/{round_}", "x"), frames.unsubscribe("same"))
        wire.expect_message("x", subscription="same")
    wire.barrier()


@pytest.mark.parametrize("version", ESCAPING)
def test_the_id_is_required_from_1_1_on(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.unsubscribe(None, ("destination", topic), receipt="r"))
    subscriber.expect_error("E-ID-MISSING", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_id_is_an_error(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "one")
    wire.send(frames.unsubscribe("two", receipt="r"))
    wire.expect_error("E-SUB-UNKNOWN", receipt_id="r", subscription="two")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_unsubscribe_is_an_error(subscriber: Wire) -> None:
    subscriber.send(frames.unsubscribe("0", receipt="u"), frames.unsubscribe("0"))
    subscriber.expect_receipt("u")
    subscriber.expect_error("E-SUB-UNKNOWN", subscription="0")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_id_of_another_connection_is_unknown(client: Clients, topic: str, version: str) -> None:
    owner, wire = client(version), client(version)
    owner.subscribe(topic, "its")
    wire.send(frames.unsubscribe("its"))
    wire.expect_error("E-SUB-UNKNOWN")
    owner.send(frames.send(topic, "x"))
    owner.expect_message("x")


def test_1_0_ends_a_subscription_by_destination(client: Clients, topic: str) -> None:
    wire, publisher = client("1.0"), client("1.0")
    wire.subscribe(topic, None)
    wire.subscribe(f"{topic}/other", None)
    wire.send(frames.unsubscribe(None, ("destination", topic), receipt="u"))
    wire.expect_receipt("u")
    publisher.send(frames.send(topic, "not mine"), frames.send(f"{topic}/other", "mine"))
    wire.expect_message("mine")
    wire.barrier(publisher)


def test_1_0_ends_a_subscription_by_id(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, "7")
    wire.send(frames.unsubscribe("7", receipt="u"))
    wire.expect_receipt("u")
    wire.send(frames.send(topic, "not mine"))
    wire.barrier()


def test_1_0_needs_a_destination_or_an_id(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, None)
    wire.send(frames.unsubscribe(None))
    wire.expect_error("E-ID-MISSING", "E-DEST-MISSING")


def test_an_unknown_destination_in_1_0_is_an_error(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, None)
    wire.send(frames.unsubscribe(None, ("destination", f"{topic}/other")))
    wire.expect_error("E-SUB-UNKNOWN")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_thousand_subscriptions_come_and_go(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    names = numbered(1000)
    wire.send(*(frames.subscribe(f"{topic}/{name}", name, receipt=name) for name in names))
    for name in names:
        wire.expect_receipt(name)
    wire.send(*(frames.unsubscribe(name, receipt=name) for name in names))
    for name in names:
        wire.expect_receipt(name)
    wire.send(*(frames.send(f"{topic}/{name}", "x") for name in names))
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_of_a_connection_ends_its_subscriptions(client: Clients, topic: str, version: str) -> None:
    publisher = client(version)
    for _ in range(5):
        wire = client(version)
        wire.subscribe(topic)
        publisher.send(frames.send(topic, "x"))
        wire.expect_message("x")
        wire.disconnect()
    stays = client(version)
    stays.subscribe(topic)
    publisher.send(frames.send(topic, "x"))
    stays.expect_message("x")
    stays.barrier(publisher)
