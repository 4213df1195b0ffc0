"""Subscriptions to DIAG with an interval: docs/behaviour.md, section 9."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import JSON_QUERIES, answer
from tests.support.frames import VERSIONS
from tests.support.queues import until_receipt


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_come_at_an_interval_until_the_subscription_ends(client: Clients, version: str) -> None:
    wire, other = client(version), client(version)
    other.subscribe("DIAG/session", "plain")
    other.subscribe("DIAG", "clock", interval=100)
    wire.subscribe("DIAG", "i", interval=100, query="session-size")
    for _ in range(3):
        message = wire.expect_message("session-size", destination="DIAG", subscription="i")
        assert int(message["session-size"]) >= 2
    wire.send(frames.unsubscribe("i", receipt="r"))
    until_receipt(wire, "r")
    for _ in range(3):
        other.expect_message("session", destination="DIAG", subscription="clock")
    wire.barrier()


@pytest.mark.parametrize(
    ("destination", "headers", "query", "sender"),
    [
        ("DIAG", {}, "session", "DIAG"),
        ("DIAGNOSTICS", {}, "session", "DIAGNOSTICS"),
        ("DIAG/network", {}, "network", "DIAG/network"),
        ("DIAG.stale", {}, "stale", "DIAG.stale"),
        ("DIAG/network", {"query": "queues"}, "queues", "DIAG/network"),
        ("DIAG/mine", {"query": "shards"}, "shards", "DIAG/mine"),
        ("DIAG*", {}, "session", "DIAG/session"),
        ("DIAG/*", {"query": "memory"}, "memory", "DIAG/memory"),
    ],
)
def test_the_query_of_an_interval_comes_from_header_or_destination(
    client: Clients, destination: str, headers: dict[str, str], query: str, sender: str
) -> None:
    wire = client()
    wire.subscribe(destination, "i", interval=100, **headers)
    for _ in range(2):
        message = wire.expect_message(destination=sender, subscription="i")
        if query in JSON_QUERIES:
            assert message["query"] == query
            json.loads(message.text)
        else:
            assert message.text == query and message.header("query") is None


def test_each_subscription_has_an_interval_of_its_own(client: Clients) -> None:
    wire, other = client(), client()
    other.subscribe("DIAG/stale", "others")
    wire.subscribe("DIAG/stale", "fast", interval=100)
    wire.send(frames.subscribe("DIAG/stale", "slow", interval=3_600_000, receipt="r"))
    seen = [message["subscription"] for message in until_receipt(wire, "r")]
    while seen.count("fast") < 5:
        seen.append(wire.expect_message("stale")["subscription"])
    assert seen.count("slow") == 1
    other.barrier()


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_answers_at_an_interval_may_be_acknowledged(client: Clients, mode: str) -> None:
    wire = client()
    wire.subscribe("DIAG", "i", ack=mode, interval=100, query="store", prefetch_count=1)
    for _ in range(3):
        message = wire.expect_message(subscription="i")
        waiting = ack_and_wait(wire, message)
        assert waiting == [] or len(waiting) == 1
        for again in waiting:
            ack_and_wait(wire, again)


def test_no_query_is_refused_while_thousands_of_intervals_are_due(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(publish_timeout="1s")
    watcher, other = client(to=broker), client(to=broker)
    count = 9000
    watcher.send(*(frames.subscribe("DIAG/session", str(at), interval=100) for at in range(count)))
    told = Counter[str]()
    while len(told) < count:
        answer(other, "session")
        answer(other, "memory")
        other.send(frames.send("DIAG/other", "queues", receipt="asked"))
        other.expect_receipt("asked")
        for _ in range(500):
            told[watcher.expect_message("session")["subscription"]] += 1
    other.barrier()


def test_an_interval_ends_with_its_connection(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire, watcher = client(to=broker), client(to=broker)
    for _ in range(20):
        leaving = client(to=broker)
        leaving.subscribe("DIAG", "i", interval=100)
        leaving.reset()
        wire.barrier()
    watcher.subscribe("DIAG", "clock", interval=100)
    for _ in range(3):
        message = watcher.expect_message("session")
    assert int(message["subscriptions"]) == 1
    wire.barrier()
