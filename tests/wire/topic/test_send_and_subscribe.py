"""STOMP 1.2 "SEND", "SUBSCRIBE" and "MESSAGE".

See docs/behaviour.md, sections 5 to 7; docs/specification.md, items 55 to 57 and 60 to 64.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.wire import Wire


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_destination_is_required(client: Clients, version: str, command: str) -> None:
    wire = client(version)
    wire.send(frames.frame(command, ("id", "0"), ("receipt", "r")))
    wire.expect_error("E-DEST-MISSING", receipt_id="r")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_an_empty_destination_is_missing(client: Clients, version: str, command: str) -> None:
    wire = client(version)
    wire.send(frames.frame(command, ("destination", ""), ("id", "0")))
    wire.expect_error("E-DEST-MISSING")


@pytest.mark.parametrize("version", ESCAPING)
def test_subscribe_requires_an_id_from_1_1_on(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.subscribe(topic, None, receipt="r"))
    wire.expect_error("E-ID-MISSING", receipt_id="r")


def test_the_id_is_optional_in_1_0(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, None)
    wire.subscribe(f"{topic}/other", "7")
    wire.send(frames.send(topic, "x"), frames.send(f"{topic}/other", "y"))
    wire.expect_message("x", subscription=None, destination=topic)
    wire.expect_message("y", subscription="7")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_id_is_unique_within_its_connection(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "one")
    wire.send(frames.subscribe(f"{topic}/other", "one", receipt="r"))
    wire.expect_error("E-SUB-DUPLICATE", receipt_id="r", subscription="one")


def test_a_1_0_subscription_without_id_is_known_by_its_destination(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.subscribe(topic, None)
    wire.send(frames.subscribe(topic, None))
    wire.expect_error("E-SUB-DUPLICATE")


@pytest.mark.parametrize("version", VERSIONS)
def test_two_connections_may_use_the_same_id(client: Clients, topic: str, version: str) -> None:
    one, other, publisher = client(version), client(version), client(version)
    one.subscribe(topic, "same")
    other.subscribe(topic, "same")
    publisher.send(frames.send(topic, "x"))
    one.expect_message("x", subscription="same")
    other.expect_message("x", subscription="same")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["auto", "client"])
def test_every_version_has_the_ack_modes_auto_and_client(client: Clients, topic: str, version: str, mode: str) -> None:
    wire = client(version)
    wire.subscribe(topic, ack=mode)
    wire.send(frames.send(topic, "x"))
    wire.expect_message("x")


@pytest.mark.parametrize("version", VERSIONS)
def test_client_individual_is_accepted_in_every_version(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, ack="client-individual")
    wire.send(frames.send(topic, "x"))
    wire.expect_message("x")


@pytest.mark.parametrize(
    ("version", "mode"),
    [(version, mode) for version in VERSIONS for mode in ("none", "AUTO", "Client", "client-all", "auto ")],
)
def test_another_ack_mode_is_an_error(client: Clients, topic: str, version: str, mode: str) -> None:
    wire = client(version)
    wire.send(frames.subscribe(topic, "0", ack=mode, receipt="r"))
    wire.expect_error("E-ACK-MODE", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_message_has_destination_message_id_and_subscription(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "sub-1")
    wire.send(frames.send(topic, "hello"))
    message = wire.expect_message("hello", destination=topic, subscription="sub-1", content_length="5")
    assert message["message-id"]
    assert {name for name, _ in message.headers} == {"destination", "message-id", "subscription", "content-length"}


@pytest.mark.parametrize("version", VERSIONS)
def test_message_ids_are_unique(subscriber: Wire, publisher: Wire, topic: str) -> None:
    for source in (subscriber, publisher):
        source.send(*(frames.send(topic, "x") for _ in range(200)))
    assert len({subscriber.expect_message("x")["message-id"] for _ in range(400)}) == 400


def test_a_message_has_the_same_id_for_all_its_subscribers(client: Clients, topic: str) -> None:
    wires = [client(version) for version in (*VERSIONS, *VERSIONS)]
    for wire in wires:
        wire.subscribe(topic)
    client().send(frames.send(topic, "x"))
    assert len({wire.expect_message("x")["message-id"] for wire in wires}) == 1


OTHER_NAMES = [
    ("content-type", "application/json;charset=utf-8"),
    ("zebra", "1"),
    ("correlation-id", "c-1"),
    ("type", "t"),
    ("priority", "4"),
    ("alpha", "2"),
    ("reply-to", "/topic/answers"),
    ("destinations", "not destination"),
    ("message-id2", "3"),
    ("ac", "4"),
    ("acks", "5"),
]
REPEATED_NAMES = [("foo", "1"), ("bar", "2"), ("foo", "3"), ("aaa", "4"), ("foo", "5"), ("content-type", "text/x")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pairs", [OTHER_NAMES, REPEATED_NAMES], ids=["other names", "repeated names"])
def test_user_headers_are_passed_on_in_order(subscriber: Wire, topic: str, pairs: list[frames.Header]) -> None:
    subscriber.send(frames.send(topic, "{}", *pairs))
    message = subscriber.expect_message("{}")
    assert [pair for pair in message.headers if pair in pairs] == pairs


@pytest.mark.parametrize("version", VERSIONS)
def test_the_server_s_headers_cannot_be_forged_or_shadowed(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "mine")
    forged = [
        ("message-id", "forged"),
        ("subscription", "forged"),
        ("ack", "forged"),
        ("destination", "/topic/forged"),
        ("redelivered", "forged"),
        ("delivery-count", "forged"),
        ("retained", "forged"),
        ("dropped", "forged"),
        ("content-length", "1"),
    ]
    sent = frames.frame("SEND", ("before", "1"), *forged[:3], ("destination", topic), *forged[3:8], body="xyz")
    wire.send(sent, frames.send(topic, "xyz", ("content-length", "3"), *forged))
    for _ in range(2):
        message = wire.expect_message("xyz", destination=topic, subscription="mine", ack=None)
        assert all("forged" not in value for _, value in message.headers), message
        assert message.all("content-length") == ["3"]
        for name in ("message-id", "subscription", "destination"):
            assert len(message.all(name)) == 1, message


@pytest.mark.parametrize("version", ESCAPING)
def test_a_forged_header_in_escaped_spelling_stays_another_header(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "mine")
    wire.send(frames.send(topic, "x", (r"subscription\n", "user"), (r"\cack", "user")))
    message = wire.expect_message("x", subscription="mine")
    assert (message["subscription\n"], message[":ack"]) == ("user", "user")


@pytest.mark.parametrize("version", VERSIONS)
def test_receipt_and_transaction_headers_are_not_passed_on(subscriber: Wire, publisher: Wire, topic: str) -> None:
    publisher.send(frames.begin("t"), frames.send(topic, "x", transaction="t", receipt="r"), frames.commit("t"))
    subscriber.expect_message("x", receipt=None, transaction=None, receipt_id=None)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_timestamp_is_added_by_default(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic, "x"), frames.send(topic, "y", timestamp="17"))
    subscriber.expect_message("x", timestamp=None)
    subscriber.expect_message("y", timestamp="17")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_subscriber_gets_one_copy(client: Clients, topic: str, version: str) -> None:
    wires = [client(version) for _ in range(8)]
    publisher = client(version)
    for number, wire in enumerate(wires):
        wire.subscribe(topic, str(number % 3))
    for number in range(20):
        publisher.send(frames.send(topic, f"{number}"))
    for index, wire in enumerate(wires):
        for number in range(20):
            wire.expect_message(f"{number}", subscription=str(index % 3))
        wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_two_subscriptions_to_one_topic_get_one_copy_each(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "a")
    wire.subscribe(topic, "b")
    wire.send(frames.send(topic, "x"))
    assert {wire.expect_message("x")["subscription"] for _ in range(2)} == {"a", "b"}
    wire.barrier()


def test_a_hundred_subscriptions_on_one_connection(client: Clients, topic: str) -> None:
    wire, publisher = client(), client()
    wire.send(*(frames.subscribe(topic, str(number)) for number in range(100)))
    wire.barrier()
    publisher.send(frames.send(topic, "x"))
    assert sorted(int(wire.expect_message("x")["subscription"]) for _ in range(100)) == list(range(100))
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_without_subscriber_is_dropped(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send_and_wait(topic, "early")
    wire.subscribe(topic)
    wire.barrier()


@pytest.mark.parametrize(
    "name", ["plain", "/slash", "/exchanged/a/b", "a.b.c", "with space", "/topic", "/queue", "/QUEUE/a", "queue/a", "é"]
)
def test_any_name_without_a_known_prefix_is_a_topic(client: Clients, topic: str, name: str) -> None:
    destination = name + topic.replace("/", "-")
    wire, publisher = client(), client()
    wire.subscribe(destination)
    publisher.send(frames.send(destination, "x"))
    wire.expect_message("x", destination=destination)


def test_destinations_are_compared_octet_by_octet(client: Clients, topic: str) -> None:
    wire = client()
    wire.subscribe(topic)
    for other in (f"{topic}/", f"{topic}x", topic.upper(), topic[1:], f"/{topic}", topic[:-1], f"{topic} "):
        wire.send(frames.send(other, "not mine"))
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_subscribe_may_carry_headers_of_other_brokers(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "0", ("x-unknown", "1"), ("foo", "bar"))
    wire.send(frames.send(topic, "x"))
    wire.expect_message("x", foo=None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_publisher_does_not_get_its_own_messages(subscriber: Wire, publisher: Wire, topic: str) -> None:
    publisher.send(frames.send(topic, "x"))
    subscriber.expect_message("x")
    publisher.barrier()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 4095, 65535, 65536, 300_000])
def test_bodies_of_every_size_reach_many_subscribers(client: Clients, topic: str, size: int) -> None:
    wires = [client(VERSIONS[number % 3]) for number in range(6)]
    for number, wire in enumerate(wires):
        wire.subscribe(topic, f"{number // 3}")
    body = (b"abcdefghijklmnopqrstuvwxyz\0" * (size // 27 + 1))[:size]
    publisher = client()
    for _ in range(3):
        publisher.send(frames.send_counted(topic, body))
    for wire in wires:
        for _ in range(3):
            wire.expect_message(body)


@pytest.mark.parametrize(
    "header",
    [
        ("replay-from", "first"),
        ("x-stream-offset", "first"),
        ("selector", "a = 1"),
        ("exclusive", "true"),
        ("activemq.exclusive", "true"),
        ("browser", "true"),
    ],
)
def test_a_subscription_with_an_unsupported_header_is_refused(
    client: Clients, topic: str, header: tuple[str, str]
) -> None:
    wire = client("1.2")
    wire.send(frames.subscribe(topic, "0", header))
    wire.expect_error("E-NOT-SUPPORTED")


def test_durable_false_is_accepted(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.send(frames.subscribe(topic, "0", ("durable", "false"), receipt="r"))
    wire.expect_receipt("r")
