"""`no-local:true`: a connection does not get its own messages (docs/behaviour.md, section 6)."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.queues import bodies, fresh, until_receipt
from tests.support.wire import Wire

HEADERS = ["no-local", "activemq.noLocal"]
EACH_HEADER = pytest.mark.parametrize("header", HEADERS)


def subscribe(wire: Wire, destination: str, *headers: frames.Header, id: str = "0", **more: str) -> list[str]:
    """Subscribes; returns the bodies of the messages before the RECEIPT."""
    receipt = fresh("subscribed")
    wire.send(frames.subscribe(destination, id, *headers, receipt=receipt, **more))
    return bodies(until_receipt(wire, receipt))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pattern", ["", "/*", "/>"])
@EACH_HEADER
def test_messages_of_others_arrive_and_own_ones_do_not(
    client: Clients, topic: str, version: str, pattern: str, header: str
) -> None:
    wire, others = client(version), [client() for _ in range(4)]
    assert subscribe(wire, topic + pattern, (header, "true")) == []
    destination = topic + "/a" if pattern else topic
    wire.send_and_wait(destination, "own")
    for number, other in enumerate(others):
        other.send_and_wait(destination, str(number))
        wire.expect_message(str(number))
        wire.send_and_wait(destination, "own")
    wire.barrier(others[0])


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_no_local_works_in_every_ack_mode(client: Clients, topic: str, mode: str) -> None:
    wire, other = client(), client()
    assert subscribe(wire, topic, ("no-local", "true"), ack=mode) == []
    wire.send_and_wait(topic, "own")
    other.send_and_wait(topic, "x")
    message = wire.expect_message("x")
    if mode != "auto":
        assert ack_and_wait(wire, message) == []
    wire.barrier()


def test_other_subscriptions_of_the_connection_get_own_messages(client: Clients, topic: str) -> None:
    wire = client()
    assert subscribe(wire, topic, ("no-local", "true"), id="without") == []
    wire.subscribe(topic, "with")
    wire.send(frames.send(topic, "own"))
    wire.expect_message("own", subscription="with")
    wire.barrier()


def test_no_local_false_has_no_effect(client: Clients, topic: str) -> None:
    wire = client()
    assert subscribe(wire, topic, ("no-local", "false")) == []
    wire.send(frames.send(topic, "own"))
    wire.expect_message("own")


def test_own_messages_of_a_transaction_do_not_arrive(client: Clients, topic: str) -> None:
    wire, other = client(), client()
    assert subscribe(wire, topic, ("no-local", "true")) == []
    wire.send(frames.begin("t"), frames.send(topic, "own", transaction="t"), frames.commit("t", receipt="c"))
    wire.expect_receipt("c")
    other.send_and_wait(topic, "x")
    wire.expect_message("x")


def test_an_own_retained_message_does_not_arrive(client: Clients, topic: str) -> None:
    wire, other = client(), client()
    wire.send_and_wait(topic + "/own", "own", retain="set")
    other.send_and_wait(topic + "/other", "other", retain="set")
    assert subscribe(wire, topic + "/*", ("no-local", "true")) == ["other"]
    for name in ("own", "other"):
        other.send_and_wait(f"{topic}/{name}", "", retain="remove")


@pytest.mark.parametrize("name", ["durable-subscription-name", "activemq.subscriptionName"])
@EACH_HEADER
def test_a_durable_subscription_keeps_no_messages_of_its_holder(
    client: Clients, topic: str, name: str, header: str
) -> None:
    durable = (name, fresh("durable"))
    wire, other = client("1.2", ("client-id", durable[1])), client()
    assert subscribe(wire, topic, durable, (header, "true")) == []
    wire.send_and_wait(topic, "own")
    other.send_and_wait(topic, "1")
    wire.expect_message("1")
    wire.send(frames.send(topic, "own, and the last"), frames.disconnect(receipt="d"))
    wire.expect_receipt("d")
    other.send_and_wait(topic, "2")
    successor = client("1.2", ("client-id", durable[1]))
    assert subscribe(successor, topic, durable, (header, "true")) == []
    successor.expect_message("2")
    successor.send_and_wait(topic, "own")
    other.send_and_wait(topic, "3")
    successor.expect_message("3")
    successor.send(frames.unsubscribe("0", durable, receipt="u"))
    successor.expect_receipt("u")


@pytest.mark.parametrize("kind", ["/queue/", "#", "/temp-queue/"])
def test_no_local_is_refused_on_queues(client: Clients, destination: str) -> None:
    """There might be no other consumer for the message."""
    wire = client()
    wire.send(frames.subscribe(destination, "0", ("no-local", "true")))
    assert "'no-local'" in wire.expect_error("E-NOT-SUPPORTED").text


def test_no_local_is_refused_on_shared_durable_subscriptions(client: Clients, topic: str) -> None:
    wire = client()
    wire.send(frames.subscribe(topic, "0", ("no-local", "true"), durable="true"))
    wire.expect_error("E-NOT-SUPPORTED")


def test_another_value_of_no_local_is_an_error(client: Clients, topic: str) -> None:
    wire = client()
    wire.send(frames.subscribe(topic, "0", ("no-local", "perhaps")))
    wire.expect_error("E-VALUE")


def test_own_stale_messages_do_not_arrive(client: Clients, shared_broker: StartBroker) -> None:
    broker, topic = shared_broker(TTL="1h"), "/topic/" + fresh("stale")
    wire, other = client(to=broker), client(to=broker)
    wire.send_and_wait(topic, "own")
    other.send_and_wait(topic, "other")
    assert subscribe(wire, topic, ("no-local", "true")) == ["other"]
    wire.barrier(other)


@pytest.mark.parametrize("pattern", ["", "/>"])
@pytest.mark.parametrize("durable", [False, True])
def test_own_stale_messages_wait_for_another_subscriber(
    client: Clients, shared_broker: StartBroker, pattern: str, durable: bool
) -> None:
    broker, topic = shared_broker(TTL="1h"), "/topic/" + fresh("stale")
    own = (("durable-subscription-name", "own"), ("no-local", "true")) if durable else (("no-local", "true"),)
    wire, other = client("1.2", ("client-id", fresh("id")), to=broker), client(to=broker)
    for number in range(3):
        wire.send_and_wait(topic + "/a", f"own {number}")
    other.send_and_wait(topic + "/a", "other")
    assert subscribe(wire, topic + (pattern or "/a"), *own) == ["other"]
    assert subscribe(other, topic + "/a") == ["own 0", "own 1", "own 2"]
    assert subscribe(other, topic + "/a", id="late") == [], "they are delivered once"
    if durable:
        wire.send(frames.unsubscribe("0", *own[:1], receipt="u"))
        wire.expect_receipt("u")
