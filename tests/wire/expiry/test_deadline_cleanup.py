"""Deadlines do not outlive what they were set for: `timers` of the query `shards` returns to its old value.

See docs/behaviour.md, section 7.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import shards_sum
from tests.support.process import BrokerProcess
from tests.support.queues import unsubscribe_and_wait
from tests.support.waiting import eventually
from tests.support.wire import Wire

HOUR_MS = 3_600_000


@pytest.fixture
def patient(start_broker: StartBroker) -> BrokerProcess:
    """A broker whose deadlines are far in the future."""
    return start_broker(ack_timeout=f"{HOUR_MS}ms", queue_idle_expiry="1s")


def timers(watcher: Wire) -> int:
    """The number of deadlines in all threads."""
    return shards_sum(watcher, "timers")


def test_consumed_messages_leave_no_deadline(client: Clients, patient: BrokerProcess, queue: str) -> None:
    watcher, wire = client(to=patient), client(to=patient)
    before = timers(watcher)
    wire.subscribe(queue, "s")
    for number in range(500):
        wire.send(frames.send(queue, str(number), ttl=HOUR_MS - number))
        wire.expect_message(str(number))
    assert timers(watcher) <= before + 1, "one for the queue"
    unsubscribe_and_wait(wire, "s")
    eventually(lambda: timers(watcher) <= before, "the queue is forgotten and its deadline removed")


def test_deadlines_of_temporary_queues_end_with_the_connection(
    client: Clients, patient: BrokerProcess, queue: str
) -> None:
    watcher, wire = client(to=patient), client(to=patient)
    before = timers(watcher)
    for number in range(100):
        own = f"/temp-queue/{number}"
        wire.send(
            frames.subscribe(own, str(number), ack="client", prefetch_count=1),
            *(frames.send(own, body, ttl=HOUR_MS) for body in ("held", "waits")),
        )
        wire.expect_message("held", subscription=str(number))
    wire.barrier()
    assert timers(watcher) >= before + 100
    wire.close()
    eventually(lambda: timers(watcher) <= before, "all deadlines ended with the connection")


def test_an_unsubscribed_consumer_has_no_ack_timeout(client: Clients, patient: BrokerProcess, queue: str) -> None:
    watcher, wire = client(to=patient), client(to=patient)
    before = timers(watcher)
    for number in range(100):
        wire.subscribe(queue, str(number), ack="client-individual")
        wire.send(frames.send(queue, str(number)))
        message = wire.expect_message(str(number))
        wire.send(ack(wire, message))
        unsubscribe_and_wait(wire, str(number))
    eventually(lambda: timers(watcher) <= before, "no queue and no subscription remains")


def test_deadlines_of_a_connection_end_with_it(client: Clients, patient: BrokerProcess) -> None:
    watcher = client(to=patient)
    before = timers(watcher)
    for _ in range(50):
        client(to=patient, heart_beat="600000,600000").close()
    eventually(lambda: timers(watcher) <= before, "only the watcher is connected")


@pytest.mark.parametrize("interval_ms", [HOUR_MS, 1 << 32, (1 << 64) - 1])
def test_an_interval_ends_with_its_subscription(client: Clients, patient: BrokerProcess, interval_ms: int) -> None:
    watcher, wire = client(to=patient), client(to=patient)
    before = timers(watcher)
    for number in range(100):
        wire.send(frames.subscribe(f"DIAG/{number}", str(number), interval=interval_ms, query="store"))
        wire.expect_message(subscription=str(number))
    for number in range(100):
        unsubscribe_and_wait(wire, str(number))
    assert timers(watcher) <= before
    wire.send(frames.subscribe("DIAG/again", "again", interval=interval_ms, query="store"))
    wire.expect_message(subscription="again")
    wire.close()
    eventually(lambda: timers(watcher) <= before, "the deadline ends with the connection")
