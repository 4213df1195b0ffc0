"""The counters are exact: docs/behaviour.md, sections 1, 3 and 7."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stompica import Broker
from tests.support import frames
from tests.support.acks import ack_and_wait, nack, nack_and_wait
from tests.support.clock import wait_ms
from tests.support.frames import VERSIONS
from tests.support.queues import fill, take, unsubscribe_and_wait
from tests.support.wire import Wire

COUNTS = (
    "acked",
    "dead_lettered",
    "dequeued",
    "dropped",
    "enqueued",
    "expired",
    "headers_left_out",
    "late_acks",
    "nacked",
    "queue_dropped",
    "queue_expired",
    "redelivered",
    "stale",
    "timed_out",
)


class Counted:
    """A broker of the test's own, its clients, and its counters."""

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self.broker = broker
        self.stack = stack

    def client(self, version: str = "1.2") -> Wire:
        """A connected session."""
        wire = self.stack.enter_context(Wire(self.broker.port))
        wire.connect(None if version == "1.0" else version)
        return wire

    @property
    def counts(self) -> dict[str, int]:
        """The counters that are not 0."""
        assert self.broker.settle()
        stats = self.broker.stats()
        return {name: stats[name] for name in COUNTS if stats[name]}


@pytest.fixture
def counted(writers: int) -> Iterator[Callable[..., Counted]]:
    """A factory of brokers with these settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Counted:
            return Counted(stack.enter_context(Broker(writers=writers, **settings)), stack)

        yield start


Counting = Callable[..., Counted]


def test_messages_through_a_queue_are_counted(counted: Counting) -> None:
    server = counted(redelivery_delay="2ms", max_deliveries=2)
    wire, publisher = server.client(), server.client()
    fill(publisher, "/queue/a", "1", "2", "3", "4")
    wire.send(frames.subscribe("/queue/a", "s", ack="client-individual"))
    first, second, _, _ = take(wire, "1", "2", "3", "4")
    assert server.counts == {"enqueued": 4}
    assert ack_and_wait(wire, first) == []
    wire.send(nack(wire, second))
    wire.expect_message("2", delivery_count="2")
    assert server.counts == {"enqueued": 4, "dequeued": 1, "acked": 1, "nacked": 1, "redelivered": 1}
    assert unsubscribe_and_wait(wire, "s") == []
    wire.send(frames.subscribe("/queue/a"))
    take(wire, "2", "3", "4", redelivered="true")
    assert server.counts == {"enqueued": 4, "dequeued": 4, "acked": 1, "nacked": 1, "redelivered": 4}


def test_dead_letters_and_dropped_dead_letters_are_counted(counted: Counting) -> None:
    server = counted(max_deliveries=1)
    wire = server.client()
    wire.subscribe("/queue/a", "s", ack="client")
    wire.subscribe("/queue/dlq/a", "d", ack="client")
    wire.send(frames.send("/queue/a", "x"))
    wire.send(nack(wire, wire.expect_message("x", subscription="s")))
    dead = wire.expect_message("x", subscription="d")
    assert server.counts == {"enqueued": 2, "nacked": 1, "dead_lettered": 1}
    assert nack_and_wait(wire, dead) == []
    assert server.counts == {"enqueued": 2, "nacked": 2, "dead_lettered": 1, "queue_dropped": 1}


@pytest.mark.parametrize("name", ["/queue/a", "#a"])
def test_without_dead_letter_queues_what_fails_is_dropped_and_counted(counted: Counting, name: str) -> None:
    server = counted(compat="stompica", max_deliveries=1)
    wire = server.client()
    wire.subscribe(name, "s", ack="client")
    wire.subscribe("/queue/dlq/a", "d")
    wire.send(frames.send(name, "x"))
    assert nack_and_wait(wire, wire.expect_message("x", subscription="s")) == []
    assert server.counts == {"enqueued": 1, "nacked": 1, "queue_dropped": 1}


def test_ack_timeouts_are_counted(counted: Counting) -> None:
    server = counted(ack_timeout="50ms", max_deliveries=1)
    wire = server.client()
    wire.subscribe("/queue/a", "s", ack="client")
    wire.subscribe("/queue/dlq/a", "d")
    wire.send(frames.send("/queue/a", "x"))
    wire.expect_message("x", subscription="s")
    wire.expect_message("x", subscription="d")
    assert server.counts == {"enqueued": 2, "dequeued": 1, "timed_out": 1, "dead_lettered": 1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", ["unsubscribe", "ack_timeout"])
def test_late_acks_are_counted(counted: Counting, version: str, way: str) -> None:
    """Each late ACK counts as one, twice for the same delivery too, and changes nothing else."""
    server = counted(ack_timeout="50ms", max_deliveries=1)
    wire, dlq = server.client(version), server.client()
    dlq.subscribe("/queue/dlq/a")
    wire.subscribe("/queue/a", "s", ack="client")
    wire.send(frames.send("/queue/a", "x"))
    message = wire.expect_message("x")
    if way == "unsubscribe":
        assert unsubscribe_and_wait(wire, "s") == []
    else:
        dlq.expect_message("x", dead_letter_reason="max-deliveries")
    before = server.counts
    assert "late_acks" not in before
    assert ack_and_wait(wire, message, message) == []
    if version != "1.0":
        assert nack_and_wait(wire, message) == []
    assert server.counts == before | {"late_acks": 2 if version == "1.0" else 3}


def test_expired_messages_are_counted(counted: Counting) -> None:
    """A queue's are dead-lettered; a topic's are dropped, on arrival or while they wait for credit or a subscriber."""
    server = counted(TTL="1h")
    wire, clock = server.client(), server.client()
    wire.subscribe("/queue/dlq/a", "d")
    wire.send(frames.send("/queue/a", "x", expires=1))
    wire.expect_message("x", subscription="d")
    assert (server.counts["queue_expired"], server.counts["dead_lettered"]) == (1, 1)
    wire.subscribe("/topic/a", "t")
    wire.send_and_wait("/topic/a", "x", expires=1)
    assert server.counts["expired"] == 1
    wire.send_and_wait("/topic/stale", "x", ttl=20)
    assert server.counts["stale"] == 1
    wait_ms(clock, 60)
    assert server.counts["expired"] == 2
    before = server.counts["queue_expired"]
    wire.subscribe("/topic/credit", "c", ack="client", prefetch_count=1)
    wire.send(frames.send("/topic/credit", "1"), frames.send("/topic/credit", "2", ttl=20))
    wire.expect_message("1")
    wait_ms(clock, 60)
    assert server.counts["queue_expired"] == before + 2, "the test's own message and that of wait_ms"
    assert server.counts["dead_lettered"] == server.counts["queue_expired"] - 1


def test_messages_dropped_by_a_full_stale_store_are_counted(counted: Counting) -> None:
    server = counted(TTL="1h", max_stale_queue_size=2)
    wire = server.client()
    for number in range(5):
        wire.send_and_wait(f"/topic/{number}", "x")
    assert server.counts == {"stale": 5, "dropped": 3}


@pytest.mark.parametrize("destination", ["/topic/a", "/queue/a"])
def test_headers_that_a_version_cannot_carry_are_counted(counted: Counting, destination: str) -> None:
    server = counted()
    publisher, *wires = (server.client(version) for version in ("1.2", "1.0", "1.1", "1.2"))
    for wire in wires:
        wire.subscribe(destination, "s")
    sent = {"lf": r"a\nb", "cr": r"a\rb", "colon": r"a\cb", "plain": "a"}
    publisher.send(*(frames.send(destination, "x", **sent) for _ in wires))
    left_out = 0
    for wire in wires:
        for _ in range(1 if destination == "/queue/a" else len(wires)):
            message = wire.expect_message("x", plain="a", lf=None if wire.version == "1.0" else "a\nb")
            left_out += sum(name not in message for name in sent)
    assert server.counts["headers_left_out"] == left_out > 0
