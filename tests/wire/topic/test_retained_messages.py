"""The retained message of a topic: docs/behaviour.md, section 7."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack_and_wait
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.clock import wait_ms
from tests.support.frames import VERSIONS
from tests.support.parser import Frame
from tests.support.queues import bodies, left_in, unsubscribe_and_wait, until_receipt
from tests.support.wire import Wire

EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)


def retain(wire: Wire, topic: str, body: str, *pairs: frames.Header, **headers: frames.HeaderValue) -> None:
    """Sets the topic's retained message."""
    wire.send_and_wait(topic, body, *pairs, retain="set", **headers)


def remove(wire: Wire, topic: str) -> None:
    """Removes the topic's retained message."""
    wire.send_and_wait(topic, "", retain="remove")


def subscribed(wire: Wire, topic: str, id: str = "0", **headers: frames.HeaderValue) -> list[Frame]:
    """Subscribes; returns the MESSAGEs before the RECEIPT."""
    wire.send(frames.subscribe(topic, id, receipt=f"subscribed {id}", **headers))
    return until_receipt(wire, f"subscribed {id}")


@EACH_VERSION
def test_a_new_subscriber_gets_the_retained_message_before_its_receipt(
    client: Clients, ws: OpenWebSocket, topic: str, version: str
) -> None:
    publisher = client(version)
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    for number in range(5):
        retain(publisher, topic, f"value {number}", *pairs)
    for wire in (client(version), client(version), ws(version)):
        (message,) = subscribed(wire, topic, "s")
        assert (message.text, message["retained"]) == ("value 4", "true")
        assert (message["destination"], message["subscription"]) == (topic, "s")
        assert [pair for pair in message.headers if pair[0] in ("a", "b")] == pairs
        wire.barrier(publisher)


@EACH_VERSION
def test_an_existing_subscriber_gets_it_as_a_live_message(client: Clients, topic: str, version: str) -> None:
    publisher, wire, late = (client(version) for _ in range(3))
    wire.subscribe(topic)
    retain(publisher, topic, "x")
    live = wire.expect_message("x", retained=None)
    wire.barrier(publisher)
    (kept,) = subscribed(late, topic)
    assert kept["message-id"] == live["message-id"]


@EACH_VERSION
def test_a_message_without_retain_does_not_replace_the_retained_one(client: Clients, topic: str, version: str) -> None:
    publisher, wire = client(version), client(version)
    retain(publisher, topic, "value")
    publisher.send_and_wait(topic, "passing")
    assert bodies(subscribed(wire, topic)) == ["value"]
    publisher.send(frames.send(topic, "live"))
    wire.expect_message("live", retained=None)


@EACH_VERSION
def test_a_removed_message_is_gone(client: Clients, topic: str, version: str) -> None:
    publisher = client(version)
    retain(publisher, topic, "value")
    remove(publisher, topic)
    assert subscribed(client(version), topic) == []
    remove(publisher, topic)
    retain(publisher, topic, "again")
    assert bodies(subscribed(client(version), topic)) == ["again"]


def test_a_retained_message_outlives_its_publisher(client: Clients, topic: str) -> None:
    publisher = client()
    retain(publisher, topic, "value")
    publisher.disconnect()
    assert bodies(subscribed(client(), topic)) == ["value"]


def test_each_subscription_gets_the_retained_message(client: Clients, topic: str) -> None:
    publisher, wire = client(), client()
    retain(publisher, topic, "value")
    for id in ("a", "b", "a again"):
        assert [(message.text, message["subscription"]) for message in subscribed(wire, topic, id)] == [("value", id)]
    assert unsubscribe_and_wait(wire, "a") == []
    assert bodies(subscribed(wire, topic, "a")) == ["value"]


def test_an_empty_body_can_be_retained(client: Clients, topic: str) -> None:
    retain(client(), topic, "")
    (message,) = subscribed(client(), topic)
    assert (message.body, message["retained"]) == (b"", "true")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("other", VERSIONS)
def test_a_retained_message_reaches_subscribers_of_every_version(
    client: Clients, topic: str, version: str, other: str
) -> None:
    publisher = client(version)
    retain(publisher, topic, "x", ("k", "a:b" if version == "1.0" else r"a\cb"))
    (message,) = subscribed(client(other), topic)
    assert (message.text, message["k"], message["retained"]) == ("x", "a:b", "true")


@pytest.mark.parametrize("pattern", ["/*", "/>", "/**", "/#", "/a*"])
def test_a_pattern_gets_every_retained_message_it_matches(client: Clients, topic: str, pattern: str) -> None:
    publisher, wire = client(), client()
    names = {f"{topic}/a{number}" for number in range(20)}
    for name in names:
        retain(publisher, name, "old")
        retain(publisher, name, name)
    for name in (f"{topic}x/a", f"{topic}.a"):
        retain(publisher, name, "another")
    found = subscribed(wire, topic + pattern)
    assert len(found) == 20
    assert {message["destination"] for message in found} == names == set(bodies(found))
    assert {message["retained"] for message in found} == {"true"}
    for name in (*names, f"{topic}x/a", f"{topic}.a"):
        remove(publisher, name)


def test_a_subscriber_that_joins_while_values_are_set_misses_none(client: Clients, topic: str) -> None:
    """Live messages may come before the retained one, but no newer one does, and none is missing after it."""
    publisher, wires = client(), [client() for _ in range(10)]
    for number in range(501):
        publisher.send(frames.send(topic, str(number), retain="set"))
        if number % 50 == 25:
            wires[number // 50].send(frames.subscribe(topic, receipt="r"))
    found = [until_receipt(wire, "r") for wire in wires]
    publisher.send(frames.send(topic, "end"))
    for wire, messages in zip(wires, found, strict=True):
        while (message := wire.expect_message()).text != "end":
            messages.append(message)
        live = [int(message.text) for message in messages if "retained" not in message]
        places = [at for at, message in enumerate(messages) if "retained" in message]
        assert live == list(range(live[0] if live else 501, 501)), f"a live message is missing: {live}"
        assert len(places) <= 1, f"several retained messages: {messages}"
        for at in places:
            value = int(messages[at].text)
            assert all(number <= value for number in live[:at]), f"the retained {value} came after a newer message"
            assert (live[0] if live else 501) <= value + 1, f"messages are missing after the retained {value}"


@EACH_VERSION
def test_a_new_durable_subscriber_gets_the_retained_message_before_its_receipt(
    client: Clients, topic: str, version: str
) -> None:
    publisher, wire = client(version), client(version)
    retain(publisher, topic, "value")
    (message,) = subscribed(wire, topic, f"d{topic}", durable="true")
    assert (message.text, message["retained"]) == ("value", "true")
    publisher.send(frames.send(topic, "live"))
    wire.expect_message("live", retained=None)
    wire.send(frames.unsubscribe(f"d{topic}", durable="true"))


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_retained_message_can_be_acknowledged(client: Clients, topic: str, version: str, mode: str) -> None:
    publisher, wire = client(version), client(version)
    retain(publisher, topic, "value")
    (message,) = subscribed(wire, topic, "s", ack=mode)
    assert ack_and_wait(wire, message) == []
    publisher.send(frames.send(topic, "live"))
    wire.expect_message("live", redelivered=None)
    assert bodies(subscribed(client(version), topic)) == ["value"]


@EACH_VERSION
def test_a_transaction_sets_the_retained_message_at_commit(client: Clients, topic: str, version: str) -> None:
    publisher = client(version)
    retain(publisher, topic, "old")
    publisher.send(frames.begin("t"), frames.send(topic, "new", retain="set", transaction="t", receipt="r"))
    publisher.expect_receipt("r")
    assert bodies(subscribed(client(version), topic)) == ["old"]
    publisher.send(frames.abort("t"), frames.begin("t"))
    publisher.send(frames.send(topic, "newest", retain="set", transaction="t"), frames.commit("t", receipt="c"))
    publisher.expect_receipt("c")
    assert bodies(subscribed(client(version), topic)) == ["newest"]


def test_a_destination_without_topic_prefix_can_have_a_retained_message(client: Clients, topic: str) -> None:
    name = "plain" + topic
    retain(client(), name, "value")
    assert bodies(subscribed(client(), name)) == ["value"]


@EACH_VERSION
@pytest.mark.parametrize("header", ["retained", "redelivered", "delivery-count"])
def test_a_forged_header_is_not_passed_on(client: Clients, topic: str, version: str, header: str) -> None:
    publisher, wire = client(version), client(version)
    wire.subscribe(topic)
    publisher.send(frames.send(topic, "x", (header, "true"), ("k", "v")))
    assert header not in wire.expect_message("x", k="v")
    retain(publisher, topic, "y", ("retained", "forged"), ("k", "v"))
    wire.expect_message("y", retained=None, k="v")
    (message,) = subscribed(client(version), topic)
    assert message.all("retained") == ["true"]


# -- limits and errors ---------------------------------------------------------------------------------------------


def test_more_retained_messages_than_allowed_are_an_error(
    client: Clients, shared_broker: StartBroker, topic: str
) -> None:
    broker = shared_broker(max_retained=2)
    publisher, wire = client(to=broker), client(to=broker)
    listener = client(to=broker)
    listener.subscribe(f"{topic}/c")
    retain(publisher, f"{topic}/a", "a")
    retain(publisher, f"{topic}/b", "b")
    retain(publisher, f"{topic}/a", "a again")
    wire.send(frames.send(f"{topic}/c", "c", retain="set", receipt="r"))
    wire.expect_error("E-RETAINED-COUNT", receipt_id="r")
    listener.barrier(publisher)
    remove(publisher, f"{topic}/b")
    retain(publisher, f"{topic}/c", "c")
    listener.expect_message("c")
    found = subscribed(client(to=broker), f"{topic}/*")
    assert sorted(bodies(found)) == ["a again", "c"]
    for name in "ac":
        remove(publisher, f"{topic}/{name}")


def test_a_commit_that_would_retain_too_many_messages_has_no_effect(
    client: Clients, shared_broker: StartBroker, topic: str, queue: str
) -> None:
    broker = shared_broker(max_retained=2)
    wire, other, listener = (client(to=broker) for _ in range(3))
    listener.subscribe(f"{topic}/1")
    wire.send(frames.begin("t"), frames.send(queue, "never", transaction="t"))
    wire.send(*(frames.send(f"{topic}/{number}", "x", retain="set", transaction="t") for number in range(3)))
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-RETAINED-COUNT", receipt_id="c")
    assert left_in(other, queue) == []
    other.subscribe(f"{topic}/*")
    listener.barrier(other)


def test_max_retained_0_allows_none(client: Clients, start_broker: StartBroker, topic: str) -> None:
    wire = client(to=start_broker(max_retained=0))
    remove(wire, topic)
    wire.send(frames.send(topic, "x", retain="set", receipt="r"))
    wire.expect_error("E-RETAINED-COUNT", receipt_id="r")


@pytest.mark.parametrize("header", ["ttl", "expiration"])
def test_an_expired_retained_message_makes_room(
    client: Clients, shared_broker: StartBroker, topic: str, header: str
) -> None:
    broker = shared_broker(max_retained=2)
    publisher, wire = client(to=broker), client(to=broker)
    retain(publisher, f"{topic}/a", "expires", (header, "50"))
    retain(publisher, f"{topic}/b", "stays", (header, "100000"))
    wait_ms(publisher, 150)
    assert bodies(subscribed(wire, f"{topic}/*")) == ["stays"]
    retain(publisher, f"{topic}/c", "room")
    for name in "bc":
        remove(publisher, f"{topic}/{name}")


def test_an_expired_retained_message_is_not_dead_lettered(client: Clients, topic: str) -> None:
    publisher = client()
    retain(publisher, topic, "x", ("ttl", "10"))
    wait_ms(publisher, 100)
    assert left_in(publisher, f"/queue/dlq{topic}") == []


@EACH_VERSION
@pytest.mark.parametrize("value", ["true", "yes", "SET", "set ", "delete", "1"])
def test_another_value_of_retain_is_an_error(client: Clients, topic: str, version: str, value: str) -> None:
    wire, other = client(version), client(version)
    other.subscribe(topic)
    wire.send(frames.send(topic, "never", retain=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
    other.barrier()


@EACH_VERSION
@pytest.mark.parametrize("value", ["set", "remove"])
@pytest.mark.parametrize("kind", ["queue", "worker", "temp-queue"])
def test_retain_on_another_kind_of_destination_is_an_error(
    client: Clients, topic: str, version: str, value: str, kind: str
) -> None:
    wire = client(version)
    names = {"queue": topic.replace("/topic", "/queue"), "worker": f"#{topic}", "temp-queue": "/temp-queue/x"}
    destination = names[kind]
    if kind == "temp-queue":
        wire.subscribe(destination)
    wire.send(frames.send(destination, "x", retain=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
