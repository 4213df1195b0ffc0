"""STOMP 1.0 unsubscribes by destination: a client with many subscriptions does not delay the others."""

from __future__ import annotations

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import shards_sum

COUNT = 5000
VISITS_MAX = 20_000
"""The visits of one turn, with what it has begun."""


def test_each_search_counts_as_work_of_its_turn(client: Clients, start_broker: StartBroker) -> None:
    """Each UNSUBSCRIBE searches half of the remaining subscriptions on average."""
    broker = start_broker()
    watcher, wire = client(to=broker, timeout=60), client("1.0", to=broker, timeout=60)
    wire.send(*(frames.subscribe(f"/topic/one/{number}", f"{number}") for number in range(COUNT)))
    wire.barrier()
    before = shards_sum(watcher, "turns")
    named = (frames.unsubscribe(None, ("destination", f"/topic/one/{number}")) for number in range(COUNT))
    wire.send(*named, frames.send("/topic/one", receipt="done"))
    wire.expect_receipt("done")
    assert shards_sum(watcher, "turns") - before > COUNT * COUNT / 4 / VISITS_MAX
