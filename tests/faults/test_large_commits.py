"""A COMMIT of very many queues goes on over many turns: it stays all or nothing, and others are served meanwhile."""

from __future__ import annotations

import json
import time

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import shards_sum
from tests.support.process import BrokerProcess
from tests.support.queues import take
from tests.support.waiting import eventually
from tests.support.wire import Wire

QUEUES = 8000


@pytest.fixture
def broker(start_broker: StartBroker, writers: int) -> BrokerProcess:
    """A broker of its own: what it holds is counted."""
    return start_broker(writers=writers, max_queue_length=4, queue_idle_expiry="1h")


def begin(wire: Wire, prefix: str, count: int = QUEUES) -> None:
    """Keeps one message to each of so many queues in a transaction."""
    queues = (f"/queue/{prefix}/{number}" for number in range(count))
    wire.send(frames.begin("t"), *(frames.send(queue, "x", transaction="t") for queue in queues))
    wire.send_and_wait("/topic/none")


def enqueued(asker: Wire) -> int:
    """Messages that all queues have got."""
    asker.send(frames.frame("DIAG", body="queues"))
    return sum(row["enqueued"] for row in json.loads(asker.expect("DIAG").body))


def is_settled(asker: Wire) -> bool:
    """Whether nothing but this question waits for any shard."""
    return shards_sum(asker, "unanswered") == 1


def test_others_are_served_meanwhile(broker: BrokerProcess, client: Clients) -> None:
    publisher, bystander = client(to=broker, timeout=30), client(to=broker)
    begin(publisher, "large", 20_000)
    publisher.send(frames.commit("t", receipt="committed"))
    publisher.sock.setblocking(False)
    answered = 0
    while True:
        bystander.send_and_wait("/topic/other")
        try:
            publisher.sock.recv(1)
            break
        except BlockingIOError:
            answered += 1
    assert answered >= 2, "one turn did it all"
    eventually(lambda: is_settled(bystander), "all of it is settled")
    assert enqueued(bystander) == 20_000


def test_a_queue_that_is_full_leaves_nothing_of_it(broker: BrokerProcess, client: Clients) -> None:
    publisher, other = client(to=broker, timeout=30), client(to=broker)
    full = f"/queue/refused/{QUEUES - 1}"
    for _ in range(4):
        other.send_and_wait(full, "x")
    begin(publisher, "refused")
    publisher.send(frames.commit("t", receipt="committed"))
    publisher.expect_error("E-QUEUE-FULL", receipt_id="committed")
    eventually(lambda: is_settled(other), "the room is free again")
    assert enqueued(other) == 4
    assert shards_sum(other, "queues") == 1, "those that were made for it are gone"
    other.subscribe("/queue/refused/0")
    other.send_and_wait("/topic/none")
    publisher = client(to=broker)
    publisher.send_and_wait("/queue/refused/0", "free")
    other.expect_message("free")


@pytest.mark.parametrize("lost_after", [1, 5, 20, 80])
def test_a_client_that_goes_meanwhile_leaves_all_or_nothing(
    broker: BrokerProcess, client: Clients, lost_after: int
) -> None:
    publisher, other = client(to=broker, timeout=30), client(to=broker)
    begin(publisher, "lost")
    publisher.send(frames.commit("t", receipt="committed"))
    for _ in range(lost_after):
        other.send_and_wait("/topic/other")
    publisher.reset()
    eventually(lambda: shards_sum(other, "connections") == 1, "it is gone")
    eventually(lambda: is_settled(other), "all of it is settled")
    found = enqueued(other)
    assert found in (0, QUEUES), "a part of it took effect"
    consumer = client(to=broker)
    consumer.subscribe("/queue/lost/7")
    if found:
        consumer.expect_message("x")
    other.send_and_wait("/queue/lost/7", "behind it")
    consumer.expect_message("behind it")


def test_what_it_acknowledges_does_not_time_out_meanwhile(start_broker: StartBroker, client: Clients) -> None:
    """Workers commit an ACK while the homes are busy; where a RECEIPT came, the job is not delivered again."""
    broker = start_broker(writers=4, ack_timeout="1s", redelivery_delay=1, max_deliveries=100)
    busy = client(to=broker, timeout=30)
    begin(busy, "busy", 10_000)
    workers = [client(to=broker, timeout=30) for _ in range(8)]
    accepted = []
    for number, worker in enumerate(workers):
        queue = f"/queue/jobs-{number}"
        worker.send(frames.send(queue, "job"), frames.subscribe(queue, "0", ack="client-individual"))
        delivered = time.monotonic()
        (job,) = take(worker, "job")
        results = (frames.send(f"/queue/results-{at}", "x", transaction="t") for at in range(16))
        ack = frames.ack(id=job["ack"], transaction="t", receipt="accepted")
        worker.send(frames.begin("t"), *results, ack)
        while worker.recv_frame().header("receipt-id") != "accepted":
            pass
        accepted.append(time.monotonic() - delivered < 0.5)  # in time; one that is late has no effect
    busy.send(frames.commit("t", receipt="committed"))
    for worker in workers:
        worker.send(frames.commit("t", receipt="done"))
    outcomes = []
    for worker in workers:
        while (frame := worker.recv_frame()).command == "MESSAGE":
            pass  # delivered again before it was committed
        outcomes.append(frame.command)
        worker.discard()
    busy.expect_receipt("committed")
    asker = client(to=broker)
    eventually(lambda: is_settled(asker), "all of it is settled")
    asker.send(frames.frame("DIAG", body="queues"))
    sizes = {row["name"]: row["size"] for row in json.loads(asker.expect("DIAG").body)}
    for number, outcome in enumerate(outcomes):
        if accepted[number]:
            left = sizes[f"/queue/jobs-{number}"]
            assert left == (0 if outcome == "RECEIPT" else 1), f"{outcome}, and {left} jobs are left"
    assert sizes.get("/queue/results-0", 0) == outcomes.count("RECEIPT")


def test_one_that_is_refused_by_its_time_limit_takes_no_effect_later(
    start_broker: StartBroker, client: Clients
) -> None:
    """An answer to an earlier frame is due, so the ERROR has to wait, and the homes may answer behind it."""
    broker = start_broker(writers=4, publish_timeout="50ms")
    busy = client(to=broker, timeout=30)
    begin(busy, "busy", 10_000)
    hasty = [client(to=broker, timeout=30) for _ in range(8)]
    busy.send(frames.commit("t"))
    for number, wire in enumerate(hasty):
        to = [f"/queue/hasty-{number}-{at}" for at in range(16)]
        early = (frames.send(queue + "-early", "x", receipt="early") for queue in to)
        wire.send(*early, frames.begin("t"), *(frames.send(queue, "x", transaction="t") for queue in to))
        wire.send(frames.commit("t", receipt="committed"))
    outcomes = []
    for wire in hasty:
        while (frame := wire.recv_frame()).header("receipt-id") == "early" and frame.command == "RECEIPT":
            pass
        outcomes.append(frame.command)
    asker = client(to=broker)
    eventually(lambda: is_settled(asker), "all of it is settled")
    asker.send(frames.frame("DIAG", body="queues"))
    rows = json.loads(asker.expect("DIAG").body)
    for number, outcome in enumerate(outcomes):
        own = [row for row in rows if row["name"].startswith(f"/queue/hasty-{number}-")]
        kept = sum(row["enqueued"] for row in own if not row["name"].endswith("-early"))
        assert kept == (16 if outcome == "RECEIPT" else 0), f"{outcome}, and {kept} of 16 messages"
