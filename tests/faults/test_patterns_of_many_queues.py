"""Patterns over thousands of queues: their costs in memory and work do not multiply."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer, shards_sum
from tests.support.probes import memory_kib
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, until_receipt
from tests.support.waiting import eventually
from tests.support.wire import Wire

QUEUES = 8000
NAMES = "/queue/many"


@pytest.fixture
def lasting_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker whose idle queues are not deleted."""
    return start_broker(queue_idle_expiry="1h")


def fill_queues(wire: Wire) -> None:
    """Sends one message to each of many queues."""
    for first in range(0, QUEUES, 1000):
        wire.send(*(frames.send(f"{NAMES}/{number}", str(number)) for number in range(first, first + 1000)))
    wire.barrier()


def test_the_memory_of_pattern_consumers_is_not_multiplied_by_the_number_of_queues(
    client: Clients, lasting_broker: BrokerProcess
) -> None:
    watcher, wire = (client(to=lasting_broker, timeout=60) for _ in range(2))
    fill_queues(wire)
    held, resident = answer(watcher, "memory")["held_bytes"], memory_kib(lasting_broker.pid)
    for first in range(0, 1000, 100):
        wire.send(
            *(
                frames.subscribe(f"{NAMES}/>", str(number), ack="client-individual", prefetch_count=1)
                for number in range(first, first + 100)
            )
        )
    wire.send(frames.send("/topic/nobody", receipt="all"))
    assert len(until_receipt(wire, "all")) <= 1000
    held = answer(watcher, "memory")["held_bytes"] - held
    resident = 1024 * (memory_kib(lasting_broker.pid) - resident)
    assert resident < 1.5 * held + (16 << 20), f"{resident} bytes resident, {held} counted"


def test_a_change_of_patterns_does_not_walk_over_all_queues(client: Clients, lasting_broker: BrokerProcess) -> None:
    watcher, wire, other = (client(to=lasting_broker, timeout=60) for _ in range(3))

    def cost() -> int:
        """Returns the processor time of 1,000 patterns that are subscribed and unsubscribed, in microseconds."""
        before = shards_sum(watcher, "cpu_us")
        wire.send(
            *(
                frames.subscribe(f"{NAMES}/{number}/>", number) + frames.unsubscribe(number)
                for number in map(str, range(1000))
            ),
            frames.send("/topic/nobody", receipt="done"),
        )
        wire.expect_receipt("done")
        other.barrier()
        return shards_sum(watcher, "cpu_us") - before

    cost()
    alone = cost()
    fill_queues(wire)
    among_many = cost()
    assert among_many < 5 * alone + 100_000, f"{among_many} µs among {QUEUES} queues, {alone} µs without"
    assert max(shard["max_turn_visits"] for shard in answer(watcher, "shards")) < 30_000


@pytest.mark.parametrize("between", ["nothing", "unsubscribed", "another"])
def test_messages_in_many_queues_reach_a_new_pattern_once(
    client: Clients, lasting_broker: BrokerProcess, between: str
) -> None:
    wire = client(to=lasting_broker, timeout=60)
    fill_queues(wire)
    pattern = f"{NAMES}/>"
    before = {
        "nothing": b"",
        "unsubscribed": frames.subscribe(pattern, "first", ack="client") + frames.unsubscribe("first"),
        "another": frames.subscribe(f"{NAMES}-other/>", "first") + frames.unsubscribe("first"),
    }
    wire.send(before[between], frames.subscribe(pattern, "s", receipt="subscribed"))
    found = until_receipt(wire, "subscribed")
    found += [wire.expect_message() for _ in range(QUEUES - len(found))]
    assert sorted(map(int, bodies(found))) == list(range(QUEUES))
    wire.barrier()


def test_messages_of_a_connection_that_ends_during_delivery_go_to_the_next(
    client: Clients, lasting_broker: BrokerProcess
) -> None:
    wire, short = client(to=lasting_broker, timeout=60), client(to=lasting_broker)
    fill_queues(wire)
    short.send(frames.subscribe(f"{NAMES}/>", "s", ack="client", prefetch_count=100))
    short.reset()
    wire.send(frames.subscribe(f"{NAMES}/>", "s"))
    found = [wire.expect_message() for _ in range(QUEUES)]
    assert sorted(map(int, bodies(found))) == list(range(QUEUES))
    wire.barrier()


def test_a_full_temporary_queue_is_deleted_over_several_turns(client: Clients, lasting_broker: BrokerProcess) -> None:
    watcher, wire = (client(to=lasting_broker, timeout=60) for _ in range(2))
    base = answer(watcher, "memory")["held_bytes"]
    wire.send(frames.subscribe("/temp-queue/x", "s", ack="client", prefetch_count=1))
    for _ in range(100):
        wire.send(*(frames.send("/temp-queue/x", "x") for _ in range(1000)))
    wire.expect_message("x")
    wire.barrier()
    wire.close()
    eventually(lambda: answer(watcher, "memory")["held_bytes"] < base + (1 << 20), "its memory is freed", 30)
