"""Wildcards of topic subscriptions: docs/behaviour.md, section 5."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.patterns import COMMON, DEEP, MISPLACED, SEGMENT
from tests.support.wire import Wire


def matched(wire: Wire, publisher: Wire, topic: str, names: list[str]) -> list[str]:
    """Those of `names` that reach `wire`, in order of arrival."""
    publisher.send(*(frames.send(topic + name, name) for name in names), frames.send(f"{topic}-end", "end"))
    found = []
    while (message := wire.expect_message()).text != "end":
        assert message["destination"] == topic + message.text
        found.append(message.text)
    return found


def check(wire: Wire, publisher: Wire, topic: str, pattern: str, matches: list[str], others: list[str]) -> None:
    """Checks what a pattern matches before, during and after its subscription."""
    wire.subscribe(f"{topic}-end", "end")
    names = [*matches, *others, *matches]
    assert matched(wire, publisher, topic, names) == []
    wire.subscribe(topic + pattern, "pattern")
    for _ in range(2):
        assert matched(wire, publisher, topic, names) == [*matches, *matches]
    wire.send(frames.unsubscribe("pattern", receipt="u"))
    wire.expect_receipt("u")
    assert matched(wire, publisher, topic, names) == []


@pytest.mark.parametrize(("pattern", "matches", "others"), COMMON + DEEP)
def test_a_pattern_matches_the_expected_names(
    client: Clients, topic: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    check(client(), client(), topic, pattern, matches, others)


@pytest.mark.parametrize(("pattern", "matches", "others"), COMMON + SEGMENT)
def test_a_pattern_matches_the_expected_names_with_wildcards_segment(
    client: Clients, shared_broker: StartBroker, topic: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    broker = shared_broker(wildcards="segment")
    check(client(to=broker), client(to=broker), topic, pattern, matches, others)


@pytest.mark.parametrize("pattern", ["*", ">", "**", "/*", "/>", "/**"])
def test_a_lone_wildcard_matches_topics(client: Clients, start_broker: StartBroker, pattern: str) -> None:
    broker = start_broker()
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe(pattern)
    names = ["/a", "/topic/a/b", "/topic/a.b"] + ([] if pattern.startswith("/") else ["a", "a.b", "a/b"])
    for name in names:
        publisher.send(frames.send(name, name))
        wire.expect_message(name, destination=name)
    if pattern.startswith("/"):
        publisher.send(frames.send("a/b", "no leading slash"), frames.send("/end", "end"))
        wire.expect_message("end")


@pytest.mark.parametrize("pattern", MISPLACED)
def test_a_star_inside_a_segment_is_an_error(client: Clients, topic: str, pattern: str) -> None:
    wire = client()
    wire.send(frames.subscribe(topic + pattern, receipt="r"))
    wire.expect_error("E-DEST-INVALID", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "suffix", ["/*", "/*/a", "/a*", "/a*b", "*", ".*", "/>", ".>", "/**", ".**", "/#", ".#", "/**/a", "/a/*/>"]
)
def test_send_to_a_wildcard_is_an_error(client: Clients, topic: str, version: str, suffix: str) -> None:
    wire = client(version)
    wire.send(frames.send(topic + suffix, "x", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


@pytest.mark.parametrize("destination", ["*", ">", "**", "/*", "/>", "/#"])
def test_send_to_a_lone_wildcard_is_an_error(client: Clients, destination: str) -> None:
    wire = client()
    wire.send(frames.send(destination, "x"))
    wire.expect_error("E-DEST-WILDCARD")


@pytest.mark.parametrize("suffix", ["/>/a", "/#/a", "/a>", "/a#", "/>a", "/#a"])
def test_a_send_to_a_name_that_only_looks_like_a_wildcard_is_accepted(client: Clients, topic: str, suffix: str) -> None:
    wire = client()
    wire.subscribe(topic + suffix)
    wire.send(frames.send(topic + suffix, "x"))
    wire.expect_message("x", destination=topic + suffix)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_message_names_the_destination_of_the_send(client: Clients, topic: str, version: str) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(f"{topic}/*", "w")
    publisher.send(frames.send(f"{topic}/a", "x"))
    wire.expect_message("x", destination=f"{topic}/a", subscription="w")


@pytest.mark.parametrize("version", VERSIONS)
def test_overlapping_subscriptions_get_one_copy_each(client: Clients, topic: str, version: str) -> None:
    wire, publisher = client(version), client(version)
    for id, pattern in [("exact", "/a/b"), ("star", "/a/*"), ("middle", "/*/b"), ("deep", "/>"), ("hash", "/a/b/#")]:
        wire.subscribe(topic + pattern, id)
    publisher.send(frames.send(f"{topic}/a/b", "x"))
    got = {wire.expect_message("x")["subscription"] for _ in range(5)}
    assert got == {"exact", "star", "middle", "deep", "hash"}
    wire.barrier(publisher)


def test_pattern_and_exact_subscribers_of_many_connections_get_each_message(client: Clients, topic: str) -> None:
    wires = [client(VERSIONS[number % 3]) for number in range(9)]
    publisher = client()
    for number, wire in enumerate(wires):
        wire.subscribe(topic + ["/a", "/*", "/#"][number // 3])
    for number in range(10):
        publisher.send(frames.send(f"{topic}/a", str(number)))
    for wire in wires:
        for number in range(10):
            wire.expect_message(str(number))
        wire.barrier(publisher)


def test_later_subscriptions_apply_to_known_destinations(client: Clients, topic: str) -> None:
    """Whatever the broker caches for a destination must not outlive the set of its subscriptions."""
    publisher = client()
    publisher.send_and_wait(f"{topic}/a/b", "nobody")
    steps = ["/a/b", "/a/*", "/*/b", "/#", "/a/b/#", "/a/>"]
    wires = [client() for _ in steps]
    for number, (wire, pattern) in enumerate(zip(wires, steps, strict=True)):
        wire.subscribe(topic + pattern)
        publisher.send_and_wait(f"{topic}/a/b", str(number))
    for first, wire in enumerate(wires):
        for number in range(first, len(steps)):
            wire.expect_message(str(number))
        wire.send(frames.unsubscribe(receipt="u"))
        wire.expect_receipt("u")
    publisher.send_and_wait(f"{topic}/a/b", "nobody")
    for wire in wires:
        wire.barrier(publisher)


def test_two_subscriptions_to_one_pattern_get_one_copy_each(client: Clients, topic: str) -> None:
    wire = client()
    wire.subscribe(f"{topic}/*", "a")
    wire.subscribe(f"{topic}/*", "b")
    wire.send(frames.send(f"{topic}/x", "1"))
    assert {wire.expect_message("1")["subscription"] for _ in range(2)} == {"a", "b"}
    wire.send(frames.unsubscribe("a"), frames.send(f"{topic}/x", "2"))
    wire.expect_message("2", subscription="b")
    wire.barrier()


def test_one_pattern_gets_messages_of_many_destinations(client: Clients, topic: str) -> None:
    """A small form of C stompica's own test: one subscription to a prefix, 2,000 destinations below it."""
    wire, publisher = client(), client()
    wire.subscribe(f"{topic}/*")
    publisher.send(*(frames.send(f"{topic}/{number}", f"hello {number}") for number in range(2000)))
    for number in range(2000):
        wire.expect_message(f"hello {number}", destination=f"{topic}/{number}")
    wire.barrier(publisher)
