"""A COMMIT that waits for the homes of its queues ends by their answers alone, whatever else is retried meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.queues import take
from tests.support.waiting import eventually
from tests.support.wire import Wire

QUEUES = [f"/queue/kept-{number}" for number in range(16)]
"""Enough for every home to have some."""


def parked(asker: Wire) -> int:
    """How often SENDs were parked, in all shards."""
    asker.send(frames.frame("DIAG", body="shards"))
    return sum(row["parked"] for row in json.loads(asker.expect("DIAG").body))


def fill(filler: Wire) -> None:
    """SENDs to a queue that nobody reads, until they wait; ends with the connection."""
    with contextlib.suppress(OSError):
        for _ in range(60):
            filler.send(frames.send_counted("/queue/backlog", b"." * (1 << 20)))


@contextlib.contextmanager
def changes_of_interest(broker: BrokerProcess) -> Iterator[None]:
    """Clients on all shards that subscribe and unsubscribe all the time: whoever waits for room is tried again."""
    over = threading.Event()

    def come_and_go() -> None:
        with Wire(broker.port, timeout=30) as wire:
            wire.connect()
            for number in itertools.count():
                topic = f"/topic/{wire.local_port}/{number}"
                wire.send(frames.subscribe(topic, "0"), frames.unsubscribe("0", receipt="gone"))
                wire.expect_receipt("gone")
                if over.is_set():
                    return

    threads = [threading.Thread(target=come_and_go, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def test_pipelined_commits_of_a_client_that_half_closes_are_both_answered(
    start_broker: StartBroker, client: Clients
) -> None:
    """It holds a delivery, so that it may commit while memory is short, and a long SEND of it is on its way."""
    broker = start_broker(memory_limit="64MiB", writers=4, publish_timeout="20s")
    workers = [client(to=broker, timeout=30) for _ in range(24)]
    for number, worker in enumerate(workers):
        own = f"/queue/own-{number}"
        worker.send(frames.send(own, "x"), frames.subscribe(own, "0", ack="client-individual"))
        take(worker, "x")
    filler, asker = client(to=broker), client(to=broker)
    threading.Thread(target=fill, args=[filler], daemon=True).start()
    eventually(lambda: parked(asker) > 0, "memory is short")
    long = frames.send_counted("/queue/kept-0", b"." * (100 << 10), transaction="b")
    begun = [frames.begin("a"), *(frames.send(queue, "a", transaction="a") for queue in QUEUES), frames.begin("b")]
    for worker in workers:
        worker.send(*begun, long[: 80 << 10])
    commits = [frames.commit("a", receipt="a"), frames.commit("b", receipt="b")]
    with changes_of_interest(broker):
        for worker in workers:
            worker.send(long[80 << 10 :], *commits)
            worker.half_close()
        for worker in workers:
            worker.expect_receipt("a")
            worker.expect_receipt("b")
            worker.expect_closed()
