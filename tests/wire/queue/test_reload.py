"""Settings of queues that change while the broker runs apply to what is there: PRODUCT.md 1."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stompica import Broker
from tests.support import frames
from tests.support.acks import ack_and_wait, nack_and_wait
from tests.support.clock import let_pass
from tests.support.diagnostics import answer
from tests.support.queues import bodies, fill, left_in, take, unsubscribe_and_wait
from tests.support.wire import Wire


class Running:
    """A broker of the test's own and its clients."""

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self.broker = broker
        self.stack = stack

    def client(self) -> Wire:
        """A connected session."""
        wire = self.stack.enter_context(Wire(self.broker.port))
        wire.connect()
        return wire

    def reload(self, **settings: Any) -> None:
        """Changes settings; every thread knows it on return."""
        assert self.broker.reload(**settings) == []
        assert self.broker.settle()

    def refused(self, destination: str, code: str) -> None:
        """A SEND to this destination gets this ERROR."""
        wire = self.client()
        wire.send(frames.send(destination, "refused", receipt="r"))
        wire.expect_error(code, receipt_id="r")


Start = Callable[..., Running]


def await_no_queue(wire: Wire) -> None:
    """Returns when all queues are forgotten."""
    deadline = time.monotonic() + wire.timeout
    while answer(wire, "queues"):
        assert time.monotonic() < deadline, "it stays"


@pytest.fixture
def running(writers: int) -> Iterator[Start]:
    """A factory of brokers with these settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Running:
            return Running(stack.enter_context(Broker(writers=writers, **settings)), stack)

        yield start


def test_limits_apply_to_queues_that_hold_messages(running: Start) -> None:
    scene = running()
    wire = scene.client()
    fill(wire, "/queue/a", "1", "2", "3")
    scene.reload(max_queue_length=2)
    scene.refused("/queue/a", "E-QUEUE-FULL")
    fill(wire, "/queue/b", "1", "2")
    scene.reload(max_queue_length=4)
    fill(wire, "/queue/a", "4")
    scene.reload(max_queue_bytes=10)
    scene.refused("/queue/b", "E-QUEUE-FULL")
    scene.reload(max_queue_length="unlimited", max_queue_bytes="unlimited")
    assert bodies(left_in(wire, "/queue/a")) == ["1", "2", "3", "4"]


def test_limits_of_destinations_and_transactions_apply_at_once(running: Start) -> None:
    scene = running()
    wire = scene.client()
    fill(wire, "/queue/a", "1")
    scene.reload(max_destinations=1)
    scene.refused("/queue/b", "E-DEST-COUNT")
    fill(wire, "/queue/a", "2")
    scene.reload(max_transactions=1)
    wire.send(frames.begin("a", receipt="a"))
    wire.expect_receipt("a")
    wire.send(frames.begin("b", receipt="b"))
    wire.expect_error("E-TX-COUNT", receipt_id="b")


def test_redelivery_settings_apply_to_messages_in_flight(running: Start) -> None:
    scene = running(redelivery_delay="1h", max_deliveries=100)
    wire, grave = scene.client(), scene.client()
    grave.subscribe("/queue/dlq/a")
    wire.subscribe("/queue/a", "s", ack="client")
    wire.send(frames.send("/queue/a", "x"))
    message = wire.expect_message("x")
    scene.reload(redelivery_delay="2ms", max_deliveries=2)
    wire.send(frames.nack(id=message["ack"]))
    assert nack_and_wait(wire, wire.expect_message("x", delivery_count="2")) == []
    grave.expect_message("x", dead_letter_reason="max-deliveries")


def test_prefetch_applies_to_later_subscriptions(running: Start) -> None:
    scene = running(prefetch=1)
    wire, publisher = scene.client(), scene.client()
    fill(publisher, "/queue/a", "1", "2", "3", "4")
    wire.send(frames.subscribe("/queue/a", "s", ack="client-individual"))
    take(wire, "1")
    scene.reload(prefetch=2)
    wire.barrier(publisher)
    wire.send(frames.subscribe("/queue/a", "t", ack="client-individual"))
    take(wire, "2", "3", subscription="t")
    wire.barrier(publisher)


@pytest.mark.parametrize("before", [0, "1h"])
def test_ack_timeout_applies_to_messages_in_flight(running: Start, before: object) -> None:
    """A worker hangs over its messages: the setting that takes them back helps at once."""
    scene = running(ack_timeout=before, redelivery_delay="2ms")
    hanging, other = scene.client(), scene.client()
    hanging.subscribe("/queue/a", "s", ack="client", prefetch_count=2)
    hanging.send(frames.send("/queue/a", "x"), frames.send("/queue/a", "y"))
    hanging.expect_message("x")
    hanging.expect_message("y")
    scene.reload(ack_timeout="50ms")
    other.send(frames.subscribe("/queue/a", "s", ack="auto"))
    other.expect_message("x", delivery_count="2")
    other.expect_message("y", delivery_count="2")


def test_ack_timeout_applies_to_later_deliveries(running: Start) -> None:
    scene = running(ack_timeout="50ms", redelivery_delay="2ms", max_deliveries=1000)
    wire, clock = scene.client(), scene.client()
    wire.subscribe("/queue/a", "s", ack="client")
    wire.send(frames.send("/queue/a", "x"))
    wire.expect_message("x", redelivered=None)
    wire.expect_message("x", redelivered="true")
    scene.reload(ack_timeout=0)
    wire.send(frames.unsubscribe("s", receipt="u"))
    while wire.recv_frame().command == "MESSAGE":
        pass
    wire.send(frames.subscribe("/queue/a", "s", ack="client"))
    message = wire.expect_message("x", redelivered="true")
    let_pass(clock, 150)
    assert ack_and_wait(wire, message) == []
    scene.reload(ack_timeout="50ms")
    wire.send(frames.send("/queue/a", "y"))
    wire.expect_message("y", redelivered=None)
    wire.expect_message("y", redelivered="true")


def test_ttl_applies_to_later_messages(running: Start) -> None:
    scene = running()
    wire, publisher = scene.client(), scene.client()
    publisher.send_and_wait("/topic/a", "gone")
    scene.reload(TTL="1h")
    fill(publisher, "/topic/a", "1", "2")
    scene.reload(TTL=0)
    publisher.send_and_wait("/topic/a", "gone")
    wire.send(frames.subscribe("/topic/a", "s"))
    take(wire, "1", "2")
    wire.barrier(publisher)


def test_queue_idle_expiry_applies_to_new_queues(running: Start) -> None:
    scene = running(queue_idle_expiry="1h")
    wire = scene.client()
    scene.reload(queue_idle_expiry="1ms")
    fill(wire, "/queue/a", "x")
    assert len(left_in(wire, "/queue/a")) == 1
    await_no_queue(wire)


def test_queue_idle_expiry_applies_to_idle_queues(running: Start) -> None:
    scene = running(queue_idle_expiry="1h")
    wire = scene.client()
    fill(wire, "/queue/a", "x")
    assert len(left_in(wire, "/queue/a")) == 1
    scene.reload(queue_idle_expiry="1ms")
    await_no_queue(wire)


def test_queue_idle_expiry_applies_to_queues_that_become_idle(running: Start) -> None:
    scene = running(queue_idle_expiry="1h")
    wire = scene.client()
    fill(wire, "/queue/a", "x")
    scene.reload(queue_idle_expiry="1ms")
    assert len(left_in(wire, "/queue/a")) == 1
    await_no_queue(wire)


@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_wildcards_change_only_at_a_restart(running: Start, kind: str) -> None:
    scene = running()
    wire = scene.client()
    assert scene.broker.reload(wildcards="segment") == ["wildcards"]
    assert scene.broker.settle()
    wire.subscribe(f"{kind}a/*", "deep")
    wire.send(frames.send(f"{kind}a/b/c", "x"))
    wire.expect_message("x", subscription="deep")
    assert unsubscribe_and_wait(wire, "deep") == []
