"""Queue settings that are reloaded apply to existing queues and messages: docs/behaviour.md, section 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stompica import Broker
from tests.support import frames
from tests.support.acks import ack_and_wait, nack_and_wait
from tests.support.clock import wait_ms
from tests.support.diagnostics import answer
from tests.support.queues import bodies, fill, left_in, take, unsubscribe_and_wait
from tests.support.waiting import eventually
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
        """Changes settings; every thread knows them on return."""
        assert self.broker.reload(**settings) == []
        assert self.broker.settle()

    def refused(self, destination: str, code: str) -> None:
        """Checks that a SEND to this destination gets this ERROR."""
        wire = self.client()
        wire.send(frames.send(destination, "refused", receipt="r"))
        wire.expect_error(code, receipt_id="r")


Start = Callable[..., Running]


def wait_until_no_queue(wire: Wire) -> None:
    """Returns when all queues are forgotten."""
    eventually(lambda: not answer(wire, "queues"), "all queues are forgotten")


@pytest.fixture
def running(writers: int) -> Iterator[Start]:
    """A factory of brokers with these settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Running:
            return Running(stack.enter_context(Broker(writers=writers, **settings)), stack)

        yield start


def test_limits_apply_to_queues_that_hold_messages(running: Start) -> None:
    server = running()
    wire = server.client()
    fill(wire, "/queue/a", "1", "2", "3")
    server.reload(max_queue_length=2)
    server.refused("/queue/a", "E-QUEUE-FULL")
    fill(wire, "/queue/b", "1", "2")
    server.reload(max_queue_length=4)
    fill(wire, "/queue/a", "4")
    server.reload(max_queue_bytes=10)
    server.refused("/queue/b", "E-QUEUE-FULL")
    server.reload(max_queue_length="unlimited", max_queue_bytes="unlimited")
    assert bodies(left_in(wire, "/queue/a")) == ["1", "2", "3", "4"]


def test_limits_of_destinations_and_transactions_apply_at_once(running: Start) -> None:
    server = running()
    wire = server.client()
    fill(wire, "/queue/a", "1")
    server.reload(max_destinations=1)
    server.refused("/queue/b", "E-DEST-COUNT")
    fill(wire, "/queue/a", "2")
    server.reload(max_transactions=1)
    wire.send(frames.begin("a", receipt="a"))
    wire.expect_receipt("a")
    wire.send(frames.begin("b", receipt="b"))
    wire.expect_error("E-TX-COUNT", receipt_id="b")


def test_redelivery_settings_apply_to_messages_in_flight(running: Start) -> None:
    server = running(redelivery_delay="1h", max_deliveries=100)
    wire, dlq = server.client(), server.client()
    dlq.subscribe("/queue/dlq/a")
    wire.subscribe("/queue/a", "s", ack="client")
    wire.send(frames.send("/queue/a", "x"))
    message = wire.expect_message("x")
    server.reload(redelivery_delay="2ms", max_deliveries=2)
    wire.send(frames.nack(id=message["ack"]))
    assert nack_and_wait(wire, wire.expect_message("x", delivery_count="2")) == []
    dlq.expect_message("x", dead_letter_reason="max-deliveries")


def test_prefetch_applies_to_later_subscriptions(running: Start) -> None:
    server = running(prefetch=1)
    wire, publisher = server.client(), server.client()
    fill(publisher, "/queue/a", "1", "2", "3", "4")
    wire.send(frames.subscribe("/queue/a", "s", ack="client-individual"))
    take(wire, "1")
    server.reload(prefetch=2)
    wire.barrier(publisher)
    wire.send(frames.subscribe("/queue/a", "t", ack="client-individual"))
    take(wire, "2", "3", subscription="t")
    wire.barrier(publisher)


@pytest.mark.parametrize("before", [0, "1h"])
def test_ack_timeout_applies_to_messages_in_flight(running: Start, before: object) -> None:
    """A worker hangs: the setting requeues its messages at once."""
    server = running(ack_timeout=before, redelivery_delay="2ms")
    hanging, other = server.client(), server.client()
    hanging.subscribe("/queue/a", "s", ack="client", prefetch_count=2)
    hanging.send(frames.send("/queue/a", "x"), frames.send("/queue/a", "y"))
    hanging.expect_message("x")
    hanging.expect_message("y")
    server.reload(ack_timeout="50ms")
    other.send(frames.subscribe("/queue/a", "s", ack="auto"))
    other.expect_message("x", delivery_count="2")
    other.expect_message("y", delivery_count="2")


def test_ack_timeout_applies_to_later_deliveries(running: Start) -> None:
    server = running(ack_timeout="50ms", redelivery_delay="2ms", max_deliveries=1000)
    wire, clock = server.client(), server.client()
    wire.subscribe("/queue/a", "s", ack="client")
    wire.send(frames.send("/queue/a", "x"))
    wire.expect_message("x", redelivered=None)
    wire.expect_message("x", redelivered="true")
    server.reload(ack_timeout=0)
    wire.send(frames.unsubscribe("s", receipt="u"))
    while wire.recv_frame().command == "MESSAGE":
        pass
    wire.send(frames.subscribe("/queue/a", "s", ack="client"))
    message = wire.expect_message("x", redelivered="true")
    wait_ms(clock, 150)
    assert ack_and_wait(wire, message) == []
    server.reload(ack_timeout="50ms")
    wire.send(frames.send("/queue/a", "y"))
    wire.expect_message("y", redelivered=None)
    wire.expect_message("y", redelivered="true")


def test_ttl_applies_to_later_messages(running: Start) -> None:
    server = running()
    wire, publisher = server.client(), server.client()
    publisher.send_and_wait("/topic/a", "gone")
    server.reload(TTL="1h")
    fill(publisher, "/topic/a", "1", "2")
    server.reload(TTL=0)
    publisher.send_and_wait("/topic/a", "gone")
    wire.send(frames.subscribe("/topic/a", "s"))
    take(wire, "1", "2")
    wire.barrier(publisher)


def test_queue_idle_expiry_applies_to_new_queues(running: Start) -> None:
    server = running(queue_idle_expiry="1h")
    wire = server.client()
    server.reload(queue_idle_expiry="1ms")
    fill(wire, "/queue/a", "x")
    assert len(left_in(wire, "/queue/a")) == 1
    wait_until_no_queue(wire)


def test_queue_idle_expiry_applies_to_idle_queues(running: Start) -> None:
    server = running(queue_idle_expiry="1h")
    wire = server.client()
    fill(wire, "/queue/a", "x")
    assert len(left_in(wire, "/queue/a")) == 1
    server.reload(queue_idle_expiry="1ms")
    wait_until_no_queue(wire)


def test_queue_idle_expiry_applies_to_queues_that_become_idle(running: Start) -> None:
    server = running(queue_idle_expiry="1h")
    wire = server.client()
    fill(wire, "/queue/a", "x")
    server.reload(queue_idle_expiry="1ms")
    assert len(left_in(wire, "/queue/a")) == 1
    wait_until_no_queue(wire)


@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_wildcards_change_only_at_a_restart(running: Start, kind: str) -> None:
    server = running()
    wire = server.client()
    assert server.broker.reload(wildcards="segment") == ["wildcards"]
    assert server.broker.settle()
    wire.subscribe(f"{kind}a/*", "deep")
    wire.send(frames.send(f"{kind}a/b/c", "x"))
    wire.expect_message("x", subscription="deep")
    assert unsubscribe_and_wait(wire, "deep") == []
