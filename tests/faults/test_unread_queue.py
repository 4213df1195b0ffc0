"""A queue that nobody reads fills the memory: only its own publishers are affected (`memory_limit`)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer, shards_sum
from tests.support.probes import memory_kib
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

LIMIT = 64 << 20
"""The `memory_limit`."""
TIMEOUT_S = 15.0
"""Half of `publish_timeout`."""


@pytest.fixture
def short(start_broker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker with 80 % of its memory full of one queue's messages, whose publisher waits."""
    broker = start_broker(memory_limit=LIMIT)
    with Wire(broker.port) as publisher:
        publisher.connect()
        fill(publisher, "/queue/forgotten")
        yield broker


def fill(publisher: Wire, destination: str, *pairs: frames.Header) -> int:
    """Publishes until nothing is taken for a second. Returns how many bytes were taken."""
    message = frames.send_counted(destination, b"x" * 10_000, *pairs)
    data = message * (2 * LIMIT // len(message))
    publisher.sock.settimeout(1)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < len(data):
            sent += publisher.sock.send(data[sent : sent + (1 << 18)])
    assert sent < len(data), "the publisher did not have to wait"
    return sent


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_topic_is_still_served(short: BrokerProcess, client: Clients, size: int) -> None:
    publisher, subscriber = client(to=short, timeout=TIMEOUT_S), client(to=short, timeout=TIMEOUT_S)
    subscriber.subscribe("/topic/lively")
    for _ in range(20):
        publisher.send_and_wait("/topic/lively", b"x" * size)
        subscriber.expect("MESSAGE")


@pytest.mark.parametrize("kind", ["/queue/lively", "#lively"])
@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_queues_with_consumers_are_still_served(short: BrokerProcess, client: Clients, kind: str, ack: str) -> None:
    """Several queues, so that their homes are on all shards."""
    publisher, consumer = client(to=short, timeout=TIMEOUT_S), client(to=short, timeout=TIMEOUT_S)
    names = [f"{kind}-{at}" for at in range(6)]
    for name in names:
        consumer.subscribe(name, name, ack=ack, prefetch_count="10")
    for round_ in range(30):
        publisher.send(*(frames.send(name, f"{round_}") for name in names))
        for _ in names:
            message = consumer.expect_message(f"{round_}")
            if ack != "auto":
                consumer.send(frames.ack(id=message["ack"]))


def test_requests_are_still_answered(short: BrokerProcess, client: Clients) -> None:
    requester, answerer = client(to=short, timeout=TIMEOUT_S), client(to=short, timeout=TIMEOUT_S)
    answerer.subscribe("/queue/requests")
    requester.subscribe("/temp-queue/answers")
    for _ in range(5):
        requester.send(frames.send("/queue/requests", "?", ("reply-to", "/temp-queue/answers")))
        request = answerer.expect("MESSAGE")
        answerer.send(frames.send(request["reply-to"], "!"))
        requester.expect_message("!")


def test_a_new_consumer_lets_the_publishers_of_the_queue_continue(short: BrokerProcess, client: Clients) -> None:
    publisher, consumer = client(to=short, timeout=TIMEOUT_S), client(to=short, timeout=TIMEOUT_S)
    publisher.send(*(frames.send("/queue/late", f"{at}", receipt=f"{at}") for at in range(100)))
    consumer.subscribe("/queue/late")
    for at in range(100):
        consumer.expect_message(f"{at}")
    for at in range(100):
        publisher.expect_receipt(f"{at}")


def test_a_send_that_would_be_kept_waits_and_is_then_refused(start_broker: StartBroker, client: Clients) -> None:
    broker = start_broker(memory_limit=LIMIT, publish_timeout="5s")
    filler = client(to=broker)
    fill(filler, "/queue/forgotten")
    kept = {
        "a queue without a consumer": frames.send("/queue/other", "x", receipt="r"),
        "a retained message": frames.send("/topic/a", "x", ("retain", "set"), receipt="r"),
        "a transaction": frames.begin("t") + frames.send("/topic/a", "x", transaction="t", receipt="r"),
    }
    waiting = {what: client(to=broker, timeout=TIMEOUT_S) for what in kept}
    for what, sent in kept.items():
        waiting[what].send(sent)
    for what, wire in waiting.items():
        error = wire.expect_error("E-MEMORY", receipt_id="r")
        assert "would be kept" in error.text, what


@pytest.mark.parametrize("durable", [False, True], ids=["acknowledging", "durable"])
def test_a_topic_with_a_subscription_that_keeps_messages_waits(
    short: BrokerProcess, client: Clients, durable: bool
) -> None:
    """Publishers to another topic continue."""
    subscriber = client(to=short, timeout=TIMEOUT_S)
    if durable:
        subscriber.subscribe("/topic/kept", "d", ("durable", "true"))
        subscriber.disconnect()
    else:
        subscriber.subscribe("/topic/kept", "d", ack="client", prefetch_count="1")
    publisher = client(to=short)
    assert fill(publisher, "/topic/kept") < LIMIT // 2
    client(to=short, timeout=TIMEOUT_S).send_and_wait("/topic/other", "x")
    assert memory_kib(short.pid) < (LIMIT >> 10) + (64 << 10)


def test_a_worker_with_a_delivery_may_send_to_a_topic_that_keeps_messages(
    short: BrokerProcess, client: Clients
) -> None:
    """Its ACK follows its SEND: if the SEND had to wait, the memory would never be freed."""
    subscriber = client(to=short, timeout=TIMEOUT_S)
    subscriber.subscribe("/topic/kept", "d", ("durable", "true"))
    subscriber.disconnect()
    worker, others = client(to=short, timeout=TIMEOUT_S), client(to=short, timeout=TIMEOUT_S)
    worker.subscribe("/queue/jobs", ack="client-individual", prefetch_count="10")
    others.send(*(frames.send("/queue/jobs", f"{at}") for at in range(5)))
    jobs = [worker.expect_message(f"{at}") for at in range(5)]
    fill(client(to=short), "/topic/kept")
    for job in jobs:
        worker.send_and_wait("/topic/kept", job.body)
        worker.send(frames.begin("t"), frames.send("/topic/kept", job.body, transaction="t"))
        worker.send(frames.ack(id=job["ack"], transaction="t"), frames.commit("t", receipt="done"))
        worker.expect_receipt("done")


def test_publishers_that_leave_while_they_wait_leave_nothing_behind(start_broker: StartBroker, client: Clients) -> None:
    """Each one sends to its own long name, waits, and leaves before memory is free again."""
    broker = start_broker(memory_limit=LIMIT, publish_timeout="3s")
    watcher, filler = client(to=broker, timeout=TIMEOUT_S), client(to=broker)
    login = frames.connect(heart_beat="0,0")

    def send_and_leave(round_: int) -> int:
        """Returns the resident memory in KiB after all of them have gone."""
        for number in range(2000):
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                sock.sendall(login + frames.send(f"/queue/{round_}-{number}-" + "n" * 9000, "x"))
                assert sock.recv(1)  # its SEND has been processed
        eventually(lambda: shards_sum(watcher, "connections") <= 2, "all connections have ended", 20)
        return memory_kib(broker.pid)

    fill(filler, "/queue/forgotten")
    before = send_and_leave(0)
    assert answer(watcher, "memory")["short"]
    grown_kib = max(send_and_leave(round_) for round_ in range(1, 5)) - before
    assert grown_kib < 24 << 10, f"{grown_kib} KiB stay"
