"""Who may hold a durable subscription, and what its name belongs to: docs/behaviour.md, section 6."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.durable import EACH_DIALECT, EACH_VERSION, NAMED, Durable
from tests.support.queues import fill, numbered, take, until_receipt
from tests.support.wire import Wire

NUMBERS = numbered(10)


@EACH_VERSION
def test_two_holders_of_a_rabbitmq_subscription_share_it(durable: Durable, publisher: Wire, topic: str) -> None:
    holders = [durable.connection() for _ in range(2)]
    for holder in holders:
        assert durable.attach(holder) == []
    # each holder gets some of the ten last messages, behind its share of the others
    publisher.send(*(frames.send(topic, str(number)) for number in range(100)), *[frames.send(topic, "end")] * 10)
    found: list[list[int]] = []
    for holder in holders:
        found.append([])
        while (body := holder.expect_message().text) != "end":
            found[-1].append(int(body))
        assert found[-1] == sorted(found[-1])
    assert sorted(found[0] + found[1]) == list(range(100))
    assert min(map(len, found)) > 0


def test_the_remaining_holder_gets_all_messages(client: Clients, durable: Durable, publisher: Wire, topic: str) -> None:
    one, other = durable.connection(), durable.connection()
    assert durable.attach(one, ack="client-individual") == durable.attach(other) == []
    publisher.send(frames.send(topic, "1"), frames.send(topic, "2"))
    held, _ = one.expect_message(), other.expect_message()
    one.reset()
    other.expect_message(held.text, redelivered="true")
    fill(publisher, topic, *NUMBERS)
    take(other, *NUMBERS)


@EACH_VERSION
@pytest.mark.parametrize("dialect", NAMED)
def test_a_second_active_holder_is_an_error(durable: Durable, publisher: Wire, topic: str) -> None:
    holder, second = durable.connection(), durable.connection()
    assert durable.attach(holder) == []
    second.send(frames.subscribe(topic, "second", *durable.headers, receipt="r"))
    second.expect_error("E-DURABLE-IN-USE", receipt_id="r", subscription="second")
    publisher.send(frames.send(topic, "x"))
    holder.expect_message("x")
    holder.disconnect()
    fill(publisher, topic, "y")
    assert durable.resume(publisher) == ["y"]


@pytest.mark.parametrize("dialect", NAMED)
def test_a_holder_that_left_does_not_block_the_next(durable: Durable) -> None:
    for _ in range(10):
        wire = durable.connection()
        assert durable.attach(wire) == []
        wire.disconnect()


def session(client: Clients, scope: dict[str, str]) -> Wire:
    """A session with these headers in its CONNECT."""
    return client("1.2", *scope.items())


A_LOGIN, A_CLIENT = {"login": "a"}, {"client-id": "a"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A_LOGIN, {"login": "b"}),
        (A_CLIENT, {"client-id": "b"}),
        (A_CLIENT, {}),
        (A_LOGIN, {}),
        (A_LOGIN | {"client-id": "c"}, {"login": "b", "client-id": "c"}),
        (A_LOGIN | {"client-id": "c"}, A_LOGIN | {"client-id": "d"}),
        (A_LOGIN | {"client-id": "c"}, A_LOGIN),
    ],
)
def test_equal_names_of_different_logins_or_clients_are_separate(
    client: Clients, topic: str, name: str, one: dict[str, str], other: dict[str, str]
) -> None:
    publisher = client()
    for scope in (one, other):
        wire = session(client, scope)
        wire.subscribe(topic, name, durable="true")
        wire.disconnect()
    fill(publisher, topic, *NUMBERS)
    for scope in (one, other):
        wire = session(client, scope)
        wire.send(frames.subscribe(topic, name, durable="true"))
        take(wire, *NUMBERS)
        wire.send(frames.unsubscribe(name, durable="true", receipt="u"))
        assert until_receipt(wire, "u") == []


@pytest.mark.parametrize("scope", [A_LOGIN | {"client-id": "c"}, A_CLIENT, A_LOGIN, {}])
def test_the_same_login_and_client_resume_the_subscription(
    client: Clients, topic: str, name: str, scope: dict[str, str]
) -> None:
    publisher, wire = client(), session(client, scope)
    wire.subscribe(topic, name, durable="true")
    wire.disconnect()
    fill(publisher, topic, *NUMBERS)
    wire = session(client, scope)
    wire.send(frames.subscribe(topic, name, durable="true"))
    take(wire, *NUMBERS)


@EACH_VERSION
@EACH_DIALECT
@pytest.mark.parametrize("active", [True, False], ids=["active", "away"])
def test_a_name_belongs_to_one_destination(durable: Durable, publisher: Wire, topic: str, active: bool) -> None:
    holder = durable.connection()
    assert durable.attach(holder) == []
    if not active:
        holder.disconnect()
    wire = durable.connection()
    wire.send(frames.subscribe(f"{topic}/other", durable.id, *durable.headers, receipt="r"))
    wire.expect_error("E-DURABLE-OTHER", receipt_id="r", subscription=durable.id)
    if active:
        holder.disconnect()
    fill(publisher, topic, "x")
    assert durable.resume(publisher) == ["x"]


@EACH_DIALECT
def test_an_ended_name_is_free_for_another_destination(durable: Durable, publisher: Wire, topic: str) -> None:
    wire = durable.connection()
    assert durable.attach(wire) == durable.end(wire) == []
    assert durable.attach(wire, topic=f"{topic}/other") == []
    publisher.send(frames.send(topic, "gone"), frames.send(f"{topic}/other", "x"))
    wire.expect_message("x")
