"""A connection ends with very many unacknowledged deliveries: they are requeued over several turns."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer
from tests.support.queues import bodies
from tests.support.waiting import eventually

COUNT = 8000
QUEUE = "/queue/many"


@pytest.mark.parametrize("ends", ["reset", "unsubscribe"])
def test_all_deliveries_go_to_the_next_consumer_in_order(client: Clients, start_broker: StartBroker, ends: str) -> None:
    broker = start_broker()
    first, second, watcher = (client(to=broker, timeout=30) for _ in range(3))
    first.subscribe(QUEUE, "s", ack="client-individual", prefetch_count=0)
    for start in range(0, COUNT, 1000):
        first.send(*(frames.send(QUEUE, str(number)) for number in range(start, start + 1000)))
    for _ in range(COUNT):
        first.expect_message()
    before = sum(shard["deliveries"] for shard in answer(watcher, "shards"))
    assert before >= COUNT
    if ends == "reset":
        first.reset()
    else:
        first.send(frames.unsubscribe("s", receipt="u"))
        first.expect_receipt("u")
    second.send(frames.subscribe(QUEUE, "s", ack="client-individual", prefetch_count=0))
    found = [second.expect_message(redelivered="true") for _ in range(COUNT)]
    assert sorted(map(int, bodies(found))) == list(range(COUNT))
    assert answer(watcher, "queues")[0]["in_flight"] == COUNT
    second.close()
    watcher.send(frames.subscribe(QUEUE, "s", ack="auto"))
    left = [int(watcher.expect_message().text) for _ in range(COUNT)]
    assert sorted(left) == list(range(COUNT))


def test_deliveries_of_an_ended_topic_subscription_are_dropped(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire, watcher = client(to=broker, timeout=30), client(to=broker)
    base = answer(watcher, "memory")["held_bytes"]
    wire.subscribe("/topic/many", "s", ack="client-individual", prefetch_count=0)
    for _ in range(0, COUNT, 1000):
        wire.send(*(frames.send("/topic/many", "x") for _ in range(1000)))
    for _ in range(COUNT):
        wire.expect_message("x")
    wire.reset()
    eventually(lambda: answer(watcher, "memory")["held_bytes"] < base + (1 << 20), "their memory is freed", 30)
