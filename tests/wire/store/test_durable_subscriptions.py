"""Durable subscriptions survive the process, with those of their messages that are persistent."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.diagnostics import answer
from tests.support.durable import EACH_DIALECT, Durable
from tests.support.parser import Frame
from tests.support.queues import bodies, fill, numbered, until_receipt
from tests.support.stored import Restart, Stored, send_stored
from tests.support.wire import Wire

NUMBERS = numbered(10)


class CurrentClients(Clients):
    """Clients of the broker that runs now."""

    def __init__(self, stored: Stored) -> None:
        super().__init__(stored.broker)
        self._stored = stored

    def __call__(self, version: str | None = "1.2", *pairs: frames.Header, **headers: frames.HeaderValue) -> Wire:
        """Opens a session of this version."""
        return self._stored.client(version, *pairs, **headers)


@pytest.fixture
def dialect() -> str:
    """The dialect, unless a test is parametrised by it."""
    return "rabbitmq"


@pytest.fixture
def durable(stored: Stored, dialect: str, topic: str) -> Durable:
    """A durable subscription that does not exist yet."""
    return Durable(CurrentClients(stored), dialect, "1.2", topic, "d")


@EACH_DIALECT
def test_a_subscription_survives_with_its_persistent_messages(
    stored: Stored, durable: Durable, topic: str, restart: Restart
) -> None:
    durable.create()
    publisher = stored.client()
    for number in NUMBERS:
        fill(publisher, topic, f"not persistent {number}")
        send_stored(publisher, topic, number)
    restart(stored)
    assert durable.resume(stored.client()) == NUMBERS


@EACH_DIALECT
def test_a_subscription_without_messages_survives(
    stored: Stored, durable: Durable, topic: str, restart: Restart
) -> None:
    """It keeps what is sent to the next process before its holder is there."""
    durable.create()
    restart(stored)
    fill(stored.client(), topic, *NUMBERS)
    assert durable.resume(stored.client()) == NUMBERS
    restart(stored)
    assert durable.resume(stored.client()) == []


@EACH_DIALECT
def test_a_subscription_that_was_ended_does_not_come_back(
    stored: Stored, durable: Durable, topic: str, restart: Restart
) -> None:
    durable.create()
    send_stored(stored.client(), topic, *NUMBERS)
    wire = durable.connection()
    durable.attach(wire)
    durable.end(wire)
    restart(stored)
    send_stored(stored.client(), topic, "later")
    assert durable.resume(stored.client()) == []


def test_an_ended_subscription_can_be_created_again(
    stored: Stored, durable: Durable, topic: str, restart: Restart
) -> None:
    durable.create()
    send_stored(stored.client(), topic, "before")
    durable.end(durable.connection())
    durable.create()
    send_stored(stored.client(), topic, "after")
    restart(stored)
    assert durable.resume(stored.client()) == ["after"]


def test_a_subscription_keeps_its_topic(stored: Stored, durable: Durable, topic: str, restart: Restart) -> None:
    durable.create()
    restart(stored)
    wire = durable.connection()
    wire.send(frames.subscribe(f"{topic}-other", durable.id, *durable.headers))
    wire.expect_error("E-DURABLE-OTHER")


@pytest.mark.parametrize("dialect", ["activemq"])
def test_a_subscription_with_one_holder_still_has_one(
    stored: Stored, durable: Durable, topic: str, restart: Restart
) -> None:
    durable.create()
    restart(stored)
    durable.attach(durable.connection())
    wire = durable.connection()
    wire.send(frames.subscribe(topic, durable.id, *durable.headers))
    wire.expect_error("E-DURABLE-IN-USE")


def test_a_shared_subscription_can_still_be_shared(
    stored: Stored, durable: Durable, topic: str, restart: Restart
) -> None:
    durable.create()
    restart(stored)
    wires = [durable.connection(), durable.connection()]
    for wire in wires:
        durable.attach(wire)
    fill(stored.client(), topic, "1", "2")
    assert sorted(wire.expect_message(subscription=durable.id).text for wire in wires) == ["1", "2"]


def test_a_pattern_still_matches_topics_that_are_new(
    stored: Stored, dialect: str, topic: str, restart: Restart
) -> None:
    durable = Durable(CurrentClients(stored), dialect, "1.2", f"{topic}/*", "d")
    durable.create()
    send_stored(stored.client(), f"{topic}/a", "1")
    restart(stored)
    send_stored(stored.client(), f"{topic}/b", "2")
    restart(stored)
    assert durable.resume(stored.client()) == ["1", "2"]


def test_each_subscription_has_its_own_acknowledgements(stored: Stored, topic: str, restart: Restart) -> None:
    clients = CurrentClients(stored)
    first, second = (Durable(clients, "rabbitmq", "1.2", topic, name) for name in ("first", "second"))
    first.create()
    second.create()
    send_stored(stored.client(), topic, *NUMBERS)
    wire = first.connection()
    kept = attach_and_take(wire, first, 10)
    wire.send(*(frames.ack(id=message["ack"], receipt=message.text) for message in kept[:4]))
    for message in kept[:4]:
        wire.expect_receipt(message.text)
    restart(stored)
    again = attach_and_take(first.connection(), first, 6)
    assert bodies(again) == NUMBERS[4:]
    assert {message.header("redelivered") for message in again} == {"true"}
    assert {message.header("delivery-count") for message in again} == {"2"}
    assert bodies(attach_and_take(second.connection(), second, 10)) == NUMBERS


def test_what_several_subscriptions_have_is_stored_once_in_a_group(
    stored: Stored, topic: str, restart: Restart, writers: int, store: str
) -> None:
    """Each home hands over its own copies: a log has as many payloads as homes at most, a database a row for each."""
    clients, count, text = CurrentClients(stored), 8, "x" * 50_000
    durables = [Durable(clients, "rabbitmq", "1.2", topic, f"d{number}") for number in range(count)]
    for durable in durables:
        durable.create()
    before = answer(stored.client(), "store")["written_bytes"]
    send_stored(stored.client(), topic, text)
    written = answer(stored.client(), "store")["written_bytes"] - before
    assert len(text) < written < ((count if store == "sqlite" else writers) + 0.1) * len(text)
    for durable in durables[2:]:
        assert bodies(attach_and_take(durable.connection(), durable, 1)) == [text]
    ended = durables[0].connection()
    ended.send(frames.unsubscribe(durables[0].id, *durables[0].headers, receipt="ended"))
    ended.expect_receipt("ended")
    restart(stored)
    for durable in durables[1:]:
        assert bodies(attach_and_take(durable.connection(), durable, 1)) == [text]


def attach_and_take(wire: Wire, durable: Durable, count: int) -> list[Frame]:
    """Attaches the subscription, which acknowledges messages one by one; returns so many of what was kept."""
    receipt = f"{durable.name} attached"
    wire.send(frames.subscribe(durable.topic, durable.id, *durable.headers, ack="client-individual", receipt=receipt))
    assert until_receipt(wire, receipt) == []
    return [wire.expect_message(subscription=durable.id) for _ in range(count)]
