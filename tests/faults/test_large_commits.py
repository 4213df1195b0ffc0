"""A COMMIT to very many queues takes many turns: it is atomic, and others are served meanwhile."""

from __future__ import annotations

import time

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer, shards_sum
from tests.support.process import BrokerProcess
from tests.support.queues import take
from tests.support.waiting import eventually
from tests.support.wire import Wire

QUEUES = 8000


@pytest.fixture
def broker(start_broker: StartBroker, writers: int) -> BrokerProcess:
    """A broker of the test's own, because its memory and queues are counted."""
    return start_broker(writers=writers, max_queue_length=4, queue_idle_expiry="1h")


def begin(wire: Wire, prefix: str, count: int = QUEUES) -> None:
    """Puts one message to each of `count` queues into a transaction."""
    queues = (f"/queue/{prefix}/{number}" for number in range(count))
    wire.send(frames.begin("t"), *(frames.send(queue, "x", transaction="t") for queue in queues))
    wire.send_and_wait("/topic/none")


def enqueued(observer: Wire) -> int:
    """Returns how many messages all queues have received."""
    return sum(row["enqueued"] for row in answer(observer, "queues"))


def is_settled(observer: Wire) -> bool:
    """Whether no other request than this query waits for any shard."""
    return shards_sum(observer, "unanswered") == 1


def test_other_clients_are_served_during_a_large_commit(broker: BrokerProcess, client: Clients) -> None:
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
    assert answered >= 2, "the COMMIT was done in one turn"
    eventually(lambda: is_settled(bystander), "the COMMIT has ended")
    assert enqueued(bystander) == 20_000


def test_a_large_commit_that_meets_a_full_queue_has_no_effect(broker: BrokerProcess, client: Clients) -> None:
    publisher, other = client(to=broker, timeout=30), client(to=broker)
    full = f"/queue/refused/{QUEUES - 1}"
    for _ in range(4):
        other.send_and_wait(full, "x")
    begin(publisher, "refused")
    publisher.send(frames.commit("t", receipt="committed"))
    publisher.expect_error("E-QUEUE-FULL", receipt_id="committed")
    eventually(lambda: is_settled(other), "the reservations are released")
    assert enqueued(other) == 4
    assert shards_sum(other, "queues") == 1, "a queue that was created for the COMMIT is left"
    other.subscribe("/queue/refused/0")
    other.send_and_wait("/topic/none")
    publisher = client(to=broker)
    publisher.send_and_wait("/queue/refused/0", "free")
    other.expect_message("free")


@pytest.mark.parametrize("lost_after", [1, 5, 20, 80])
def test_a_large_commit_is_atomic_when_its_client_leaves(
    broker: BrokerProcess, client: Clients, lost_after: int
) -> None:
    publisher, other = client(to=broker, timeout=30), client(to=broker)
    begin(publisher, "lost")
    publisher.send(frames.commit("t", receipt="committed"))
    for _ in range(lost_after):
        other.send_and_wait("/topic/other")
    publisher.reset()
    eventually(lambda: shards_sum(other, "connections") == 1, "the client's connection has ended")
    eventually(lambda: is_settled(other), "the COMMIT has ended")
    found = enqueued(other)
    assert found in (0, QUEUES), "only a part of the COMMIT took effect"
    consumer = client(to=broker)
    consumer.subscribe("/queue/lost/7")
    if found:
        consumer.expect_message("x")
    other.send_and_wait("/queue/lost/7", "behind it")
    consumer.expect_message("behind it")


def test_deliveries_acknowledged_by_a_commit_do_not_time_out_meanwhile(
    start_broker: StartBroker, client: Clients
) -> None:
    """Workers commit an ACK while the homes are busy; a message whose COMMIT got a RECEIPT is not delivered again."""
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
        accepted.append(time.monotonic() - delivered < 0.5)  # in time; a late ACK has no effect
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
    observer = client(to=broker)
    eventually(lambda: is_settled(observer), "the COMMITs have ended")
    sizes = {row["name"]: row["size"] for row in answer(observer, "queues")}
    for number, outcome in enumerate(outcomes):
        if accepted[number]:
            left = sizes[f"/queue/jobs-{number}"]
            assert left == (0 if outcome == "RECEIPT" else 1), f"{outcome}, and {left} messages are left"
    assert sizes.get("/queue/results-0", 0) == outcomes.count("RECEIPT")


def test_a_commit_that_is_refused_by_its_timeout_has_no_later_effect(
    start_broker: StartBroker, client: Clients
) -> None:
    """An earlier frame waits for its answer, so the ERROR has to wait, and answers of the homes may come after it."""
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
    observer = client(to=broker)
    eventually(lambda: is_settled(observer), "the COMMIT has ended")
    rows = answer(observer, "queues")
    for number, outcome in enumerate(outcomes):
        own = [row for row in rows if row["name"].startswith(f"/queue/hasty-{number}-")]
        kept = sum(row["enqueued"] for row in own if not row["name"].endswith("-early"))
        assert kept == (16 if outcome == "RECEIPT" else 0), f"{outcome}, and {kept} of 16 messages"
