"""Messages that durable subscriptions keep while inactive, under the header names of three brokers.

See docs/behaviour.md, section 6.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack_and_wait
from tests.support.clients import Clients
from tests.support.durable import EACH_DIALECT, EACH_VERSION, NAMED, Durable
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, numbered, take, unsubscribe_and_wait, until_receipt
from tests.support.wire import Wire
from tests.support.ws import WebSocket

NUMBERS = numbered(10)


# -- messages kept while inactive ----------------------------------------------------------------------------------


@EACH_VERSION
@EACH_DIALECT
def test_messages_are_kept_in_order_while_the_subscriber_is_away(durable: Durable, publisher: Wire, topic: str) -> None:
    durable.create()
    fill(publisher, topic, *NUMBERS)
    wire = durable.connection()
    assert durable.resume(publisher, wire) == NUMBERS
    wire.disconnect()
    fill(publisher, topic, "a", "b")
    assert durable.resume(publisher) == ["a", "b"], "delivered messages come once"


@EACH_VERSION
@EACH_DIALECT
def test_an_active_durable_subscription_behaves_like_any_other(
    client: Clients, durable: Durable, publisher: Wire, topic: str, version: str
) -> None:
    plain = client(version)
    wire = durable.connection()
    assert durable.attach(wire) == []
    plain.subscribe(topic)
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    publisher.send(frames.send(topic, "x", *pairs))
    for listener in (wire, plain):
        message = listener.expect_message("x", destination=topic, redelivered=None, retained=None)
        assert [pair for pair in message.headers if pair[0] in ("a", "b")] == pairs
        listener.barrier(publisher)


@EACH_DIALECT
def test_an_unsubscribe_without_the_durable_headers_keeps_the_subscription(
    durable: Durable, publisher: Wire, topic: str
) -> None:
    wire = durable.connection()
    assert durable.attach(wire) == []
    assert unsubscribe_and_wait(wire, durable.id) == []
    fill(publisher, topic, *NUMBERS)
    wire.barrier(publisher)
    assert durable.resume(publisher, wire) == NUMBERS


@EACH_DIALECT
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_connection_keeps_the_subscription(durable: Durable, publisher: Wire, topic: str, loss: str) -> None:
    wire = durable.connection()
    detector = LossDetector(wire, publisher)
    assert durable.attach(wire) == []
    LOSSES[loss](wire)
    detector.wait()
    fill(publisher, topic, *NUMBERS)
    assert durable.resume(publisher) == NUMBERS


@EACH_DIALECT
def test_kept_messages_do_not_go_to_other_subscribers(
    client: Clients, durable: Durable, publisher: Wire, topic: str
) -> None:
    plain = client()
    durable.create()
    fill(publisher, topic, "kept")
    plain.subscribe(topic)
    plain.barrier(publisher)
    assert durable.resume(publisher) == ["kept"]


@EACH_DIALECT
def test_a_websocket_resumes_a_subscription_left_by_tcp(
    durable: Durable, publisher: Wire, broker: BrokerProcess, topic: str
) -> None:
    durable.create()
    fill(publisher, topic, *NUMBERS)
    with WebSocket.open(broker.port) as wire:
        wire.connect("1.2", *durable.connect_headers)
        assert durable.resume(publisher, wire) == NUMBERS


def test_a_durable_subscription_moves_from_connection_to_connection(
    durable: Durable, publisher: Wire, topic: str
) -> None:
    """The connections are on different shards; the subscription is the same."""
    durable.create()
    for number in range(12):
        fill(publisher, topic, f"{number} a", f"{number} b")
        wire = durable.connection()
        assert durable.resume(publisher, wire) == [f"{number} a", f"{number} b"]
        wire.disconnect()


@EACH_DIALECT
def test_a_subscriber_that_comes_and_goes_gets_each_message_once_and_in_order(
    durable: Durable, publisher: Wire, topic: str
) -> None:
    durable.create()
    numbers = numbered(2000)
    found: list[str] = []
    for first in range(0, 2000, 100):
        for number in numbers[first : first + 50]:
            publisher.send(frames.send(topic, number))
        wire = durable.connection()
        found += bodies(durable.attach(wire))
        for number in numbers[first + 50 : first + 100]:
            publisher.send(frames.send(topic, number))
        wire.send(frames.disconnect(receipt="bye"))
        found += bodies(until_receipt(wire, "bye"))
    publisher.send_and_wait(topic, "")
    found += durable.resume(publisher)
    assert found == [*numbers, ""]


def test_messages_of_publishers_on_all_shards_are_kept_in_order(client: Clients, durable: Durable, topic: str) -> None:
    publishers = [client() for _ in range(8)]
    durable.create()
    for number in range(25):
        for who, publisher in enumerate(publishers):
            publisher.send(frames.send(topic, f"{who} {number}"))
    for publisher in publishers:
        publisher.send_and_wait(f"{topic}/other")
        publisher.send_and_wait(topic, "last")
    found = [body for body in durable.resume(publishers[0]) if body != "last"]
    assert len(found) == 200
    for who in range(8):
        assert [body for body in found if body.startswith(f"{who} ")] == [f"{who} {number}" for number in range(25)]


def test_thousands_of_messages_are_kept(durable: Durable, publisher: Wire, topic: str) -> None:
    durable.create()
    numbers = numbered(5000)
    fill(publisher, topic, *numbers)
    assert durable.resume(publisher) == numbers


def test_durable_false_is_a_plain_subscription(client: Clients, topic: str, name: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(topic, name, durable="false")
    assert unsubscribe_and_wait(wire, name) == []
    fill(publisher, topic, "gone")
    wire.subscribe(topic, name, durable="false")
    wire.barrier(publisher)


@EACH_VERSION
@pytest.mark.parametrize("value", ["yes", "1", "maybe"])
def test_durable_must_be_true_or_false(client: Clients, topic: str, version: str, value: str) -> None:
    wire = client(version)
    wire.send(frames.subscribe(topic, "s", durable=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r", subscription="s")


def test_durable_requires_an_id(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.send(frames.subscribe(topic, None, durable="true", receipt="r"))
    wire.expect_error("E-ID-MISSING", receipt_id="r")


@pytest.mark.parametrize("dialect", NAMED)
def test_a_subscription_name_must_not_be_empty(client: Clients, topic: str, dialect: str) -> None:
    wire = client("1.2", client_id="c")
    wire.send(frames.subscribe(topic, "s", (NAMED[dialect], ""), receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")


@EACH_VERSION
def test_durable_has_no_effect_on_a_queue(client: Clients, queue: str, version: str) -> None:
    """Queues keep their messages anyway; two subscriptions of one name are two consumers."""
    one, other = client(version), client(version)
    one.subscribe(queue, "d", durable="true")
    other.subscribe(queue, "d", durable="true")
    fill(client(version), queue, *NUMBERS)
    found = sorted(bodies([wire.expect_message() for wire in (one, other) for _ in range(5)]))
    assert found == NUMBERS


# -- wildcards -----------------------------------------------------------------------------------------------------


@EACH_VERSION
@EACH_DIALECT
def test_a_durable_pattern_keeps_the_messages_it_matches(
    client: Clients, topic: str, name: str, version: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, version, f"{topic}/*", name), client(version)
    durable.create()
    for number in NUMBERS:
        publisher.send_and_wait(f"{topic}/{number}", f"1 {number}")
        publisher.send_and_wait(f"{topic}-{number}", "another")
        publisher.send_and_wait(f"{topic}/{number}", f"2 {number}")
    assert durable.resume(publisher) == [f"{part} {number}" for number in NUMBERS for part in (1, 2)]


def test_a_kept_message_names_the_destination_of_its_send(client: Clients, topic: str, name: str) -> None:
    durable, publisher = Durable(client, "rabbitmq", "1.2", f"{topic}/>", name), client()
    durable.create()
    publisher.send_and_wait(f"{topic}/a/b", "x")
    wire = durable.connection()
    found = durable.attach(wire) or [wire.expect_message()]
    assert [message["destination"] for message in found] == [f"{topic}/a/b"]


# -- acknowledgements ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@EACH_DIALECT
def test_unacknowledged_messages_are_redelivered(
    client: Clients, durable: Durable, publisher: Wire, topic: str, mode: str
) -> None:
    wire = durable.connection()
    detector = LossDetector(wire, publisher)
    assert durable.attach(wire, ack=mode) == []
    fill(publisher, topic, *"12345")
    messages = take(wire, *"12345", redelivered=None)
    assert ack_and_wait(wire, messages[1]) == []
    wire.reset()
    detector.wait()
    fill(publisher, topic, "6")
    wire = durable.connection()
    durable_again = durable.attach(wire, ack=mode)
    left = [*"345"] if mode == "client" else [*"1345"]
    durable_again += [wire.expect_message() for _ in range(len(left) + 1 - len(durable_again))]
    assert bodies(durable_again) == [*left, "6"]
    assert [message.header("redelivered") for message in durable_again] == ["true"] * len(left) + [None]
    assert {message.header("delivery-count") for message in durable_again[:-1]} == {"2"}


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_prefetch_applies_to_kept_messages(
    client: Clients, durable: Durable, publisher: Wire, topic: str, mode: str
) -> None:
    durable.create()
    fill(publisher, topic, *NUMBERS)
    wire = durable.connection()
    found = durable.attach(wire, ack=mode, prefetch_count=3)
    found += [wire.expect_message() for _ in range(3 - len(found))]
    wire.barrier(publisher)
    found += ack_and_wait(wire, found[2])
    given = 6 if mode == "client" else 4
    found += [wire.expect_message() for _ in range(given - len(found))]
    assert bodies(found) == NUMBERS[:given]
    wire.barrier(publisher)
