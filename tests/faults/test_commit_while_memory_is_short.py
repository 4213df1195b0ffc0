"""A COMMIT that waits for the homes of its queues is ended only by their answers, not by retries for other reasons."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer
from tests.support.process import BrokerProcess
from tests.support.queues import take
from tests.support.waiting import eventually
from tests.support.wire import Wire

QUEUES = [f"/queue/kept-{number}" for number in range(16)]
"""Enough queues for every shard to be the home of some."""


def parked(observer: Wire) -> int:
    """Returns how many SENDs were parked, in all shards."""
    return sum(row["parked"] for row in answer(observer, "shards"))


def fill(filler: Wire) -> None:
    """Sends to a queue that nobody reads until the SENDs have to wait; ends with the connection."""
    with contextlib.suppress(OSError):
        for _ in range(60):
            filler.send(frames.send_counted("/queue/backlog", b"." * (1 << 20)))


@contextlib.contextmanager
def changing_interest(broker: BrokerProcess) -> Iterator[None]:
    """Clients on all shards subscribe and unsubscribe all the time, so that parked publishers are tried again."""
    over = threading.Event()

    def subscribe_repeatedly() -> None:
        with Wire(broker.port, timeout=30) as wire:
            wire.connect()
            for number in itertools.count():
                topic = f"/topic/{wire.local_port}/{number}"
                wire.send(frames.subscribe(topic, "0"), frames.unsubscribe("0", receipt="gone"))
                wire.expect_receipt("gone")
                if over.is_set():
                    return

    threads = [threading.Thread(target=subscribe_repeatedly, daemon=True) for _ in range(4)]
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
    """Each client holds a delivery, so it may commit while memory is short, and has sent a part of a long SEND."""
    broker = start_broker(memory_limit="64MiB", writers=4, publish_timeout="20s")
    workers = [client(to=broker, timeout=30) for _ in range(24)]
    for number, worker in enumerate(workers):
        own = f"/queue/own-{number}"
        worker.send(frames.send(own, "x"), frames.subscribe(own, "0", ack="client-individual"))
        take(worker, "x")
    filler, observer = client(to=broker), client(to=broker)
    threading.Thread(target=fill, args=[filler], daemon=True).start()
    eventually(lambda: parked(observer) > 0, "memory is short")
    long = frames.send_counted("/queue/kept-0", b"." * (100 << 10), transaction="b")
    begun = [frames.begin("a"), *(frames.send(queue, "a", transaction="a") for queue in QUEUES), frames.begin("b")]
    for worker in workers:
        worker.send(*begun, long[: 80 << 10])
    commits = [frames.commit("a", receipt="a"), frames.commit("b", receipt="b")]
    with changing_interest(broker):
        for worker in workers:
            worker.send(long[80 << 10 :], *commits)
            worker.half_close()
        for worker in workers:
            worker.expect_receipt("a")
            worker.expect_receipt("b")
            worker.expect_closed()
