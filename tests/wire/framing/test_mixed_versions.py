"""Senders and receivers of different versions: a message is encoded in its receiver's; docs/behaviour.md, section 3."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import VERSIONS
from tests.support.wire import Wire

SENDER = pytest.mark.parametrize("sender", VERSIONS)
RECEIVER = pytest.mark.parametrize("receiver", VERSIONS)


@pytest.fixture
def version(receiver: str) -> str:
    """The version of `subscriber`."""
    return receiver


@pytest.fixture
def publisher(client: Clients, sender: str) -> Wire:
    """A client of the sender's version."""
    return client(sender)


# CRLF is a line end in 1.2 only.
@pytest.mark.parametrize(("sender", "eol"), [*((version, b"\n") for version in VERSIONS), ("1.2", b"\r\n")])
@RECEIVER
def test_every_version_talks_to_every_other(
    client: Clients, topic: str, sender: str, receiver: str, eol: bytes
) -> None:
    wire, publisher = client(receiver), client(sender)
    wire.subscribe(topic, "s-1")
    headers = [("destination", topic), ("content-type", "text/x"), ("k", "v w"), ("é", "日")]
    publisher.send(frames.frame("SEND", *headers, body="a\r\nb: \\n", eol=eol))
    message = wire.expect_message("a\r\nb: \\n", destination=topic, subscription="s-1", k="v w", content_type="text/x")
    assert message["é"] == "日"
    assert all(b"\r" not in name + value for name, value in message.raw)


@SENDER
@RECEIVER
def test_a_colon_in_a_value_is_escaped_for_the_receiver(
    subscriber: Wire, publisher: Wire, topic: str, sender: str, receiver: str
) -> None:
    publisher.send(frames.send(topic, "x", ("k", "a:b" if sender == "1.0" else r"a\cb"), ("l", ":")))
    message = subscriber.expect_message("x", k="a:b", l=":")
    assert message.raw_value(b"k") == (b"a:b" if receiver == "1.0" else rb"a\cb")


@SENDER
@RECEIVER
def test_a_backslash_in_a_value_is_escaped_for_the_receiver(
    subscriber: Wire, publisher: Wire, topic: str, sender: str, receiver: str
) -> None:
    publisher.send(frames.send(topic, "x", ("k", "a\\nb\\" if sender == "1.0" else r"a\\nb" + "\\\\")))
    message = subscriber.expect_message("x", k="a\\nb\\")
    assert message.raw_value(b"k") == (b"a\\nb\\" if receiver == "1.0" else rb"a\\nb" + b"\\\\")


@pytest.mark.parametrize("sender", ["1.1", "1.2"])
@RECEIVER
def test_a_line_feed_in_a_value_is_left_out_for_1_0(
    subscriber: Wire, publisher: Wire, topic: str, receiver: str
) -> None:
    publisher.send(frames.send(topic, "x", ("before", "1"), ("k", r"a\nb"), ("after", "2")))
    subscriber.expect_message("x", before="1", k=None if receiver == "1.0" else "a\nb", after="2")


@pytest.mark.parametrize("sender", ["1.1", "1.2"])
@RECEIVER
def test_a_colon_or_line_feed_in_a_name_is_left_out_for_1_0(
    subscriber: Wire, publisher: Wire, topic: str, receiver: str
) -> None:
    publisher.send(frames.send(topic, "x", (r"a\cb", "1"), (r"c\nd", "2"), (r"e\\f", "3")))
    message = subscriber.expect_message("x")
    expected = {"a:b": "1", "c\nd": "2", "e\\f": "3"} if receiver != "1.0" else {"e\\f": "3"}
    user = {name: value for name, value in message.headers if name in ("a:b", "c\nd", "e\\f")}
    assert user == expected


@pytest.mark.parametrize("sender", ["1.1", "1.2"])
@RECEIVER
def test_an_empty_value_is_left_out_for_1_0(subscriber: Wire, publisher: Wire, topic: str, receiver: str) -> None:
    publisher.send(frames.send(topic, "x", ("k", ""), ("l", "m")))
    subscriber.expect_message("x", k=None if receiver == "1.0" else "", l="m")


@RECEIVER
def test_a_carriage_return_from_1_2_is_escaped_only_for_1_2(client: Clients, topic: str, receiver: str) -> None:
    """1.2 escapes it; older versions have no escape for it: they get it as data or not at all, but never as `\\r`."""
    wire, publisher = client(receiver), client("1.2")
    wire.subscribe(topic)
    publisher.send(frames.send(topic, "x", ("k", r"a\rb"), ("l", "m")))
    message = wire.expect_message("x", l="m")
    if receiver == "1.2":
        assert message["k"] == "a\rb"
        assert message.raw_value(b"k") == rb"a\rb"
    else:
        assert message.header("k") in (None, "a\rb")


@pytest.mark.parametrize("sender", ["1.0", "1.1"])
@RECEIVER
def test_a_carriage_return_from_1_0_and_1_1_is_kept(
    subscriber: Wire, publisher: Wire, topic: str, receiver: str
) -> None:
    publisher.send(frames.send(topic, "x", ("k", "v\r"), ("l", "m")))
    message = subscriber.expect_message("x", k="v\r", l="m")
    if receiver == "1.2":
        assert message.raw_value(b"k") == rb"v\r"


@pytest.mark.parametrize("sender", ["1.1", "1.2"])
def test_leading_spaces_of_a_1_0_sender_are_not_part_of_the_value(client: Clients, topic: str, sender: str) -> None:
    wire, strict = client(sender), client(sender)
    wire.subscribe(topic)
    client("1.0").send(frames.send(f" {topic}", "old", ("k", "  v ")))
    wire.expect_message("old", destination=topic, k="v ")
    strict.send(frames.send(topic, "new", ("k", "  v ")))
    wire.expect_message("new", k="  v ")


@pytest.mark.parametrize("sender", ["1.1", "1.2"])
def test_destinations_are_read_in_the_version_of_the_session(client: Clients, topic: str, sender: str) -> None:
    r"""The destination `a:b` is written `a\cb` from 1.1 on and `a:b` in 1.0: it is the same topic."""
    wire, publisher = client("1.0"), client(sender)
    wire.subscribe(f"{topic}:b\\c", None)
    publisher.send(frames.send(f"{topic}\\cb\\\\c", "x"))
    wire.expect_message("x", destination=f"{topic}:b\\c")
    modern = client(sender)
    modern.subscribe(f"{topic}\\cb\\\\c")
    wire.send(frames.send(f"{topic}:b\\c", "y"))
    wire.expect_message("y")
    modern.expect_message("y", destination=f"{topic}:b\\c")


@SENDER
def test_one_message_reaches_subscribers_of_all_versions(client: Clients, topic: str, sender: str) -> None:
    wires = [client(version) for version in VERSIONS for _ in range(3)]
    publisher = client(sender)
    for wire in wires:
        wire.subscribe(topic, "same")
    for number in range(20):
        odd = [("k", "a:b" if sender == "1.0" else r"a\cb")] if number % 3 == 0 else []
        publisher.send(frames.send(topic, str(number), *odd))
    for wire in wires:
        for number in range(20):
            wire.expect_message(str(number), subscription="same", k="a:b" if number % 3 == 0 else None)
        wire.barrier(publisher)


@SENDER
@RECEIVER
@pytest.mark.parametrize("mode", ["auto", "client"])
def test_only_1_2_subscriptions_that_acknowledge_get_the_ack_header(
    client: Clients, topic: str, sender: str, receiver: str, mode: str
) -> None:
    wire, publisher = client(receiver), client(sender)
    wire.subscribe(topic, ack=mode)
    publisher.send(frames.send(topic, "x", ack="forged"))
    message = wire.expect_message("x")
    assert ("ack" in message) == (receiver == "1.2" and mode == "client")
    assert message.header("ack") != "forged"
