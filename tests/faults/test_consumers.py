"""Consumers that are killed, join and leave, NACK everything, or are missing (docs/behaviour.md, sections 1, 5, 7)."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.churn import churn, consumer_command
from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer
from tests.support.probes import body, rest_of
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

HELD = 1000
"""Deliveries in flight to the consumer that is killed."""

BUSY_S = 1.0
"""The least time for which a consumer that NACKs everything is watched, in seconds."""

BUSY_SHARE_MAX = 0.3
"""The share of one core: far more than delayed redeliveries need, far less than a busy loop takes."""


@contextmanager
def consumer(broker: BrokerProcess, queue: str, ack: str, prefetch: int) -> Iterator[subprocess.Popen[str]]:
    """A consumer in a process of its own that acknowledges nothing; it is killed at the end if it is still running."""
    command = consumer_command(broker, queue, ack, prefetch, "hold")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def queue(topic: str) -> str:
    """A queue that no other test uses."""
    return topic.replace("/topic/", "/queue/")


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_messages_of_a_killed_consumer_go_to_another_in_order(
    client: Clients, broker: BrokerProcess, queue: str, ack: str
) -> None:
    publisher, survivor = client(timeout=30), client(timeout=30)
    publisher.send(*(frames.send(queue, str(number)) for number in range(HELD + 99)))
    publisher.send_and_wait(queue, str(HELD + 99))
    with consumer(broker, queue, ack, HELD) as process:
        assert process.stdout is not None
        for number in range(HELD):
            assert process.stdout.readline() == f"took {number}\n"
        survivor.send(frames.subscribe(queue, "0", ack="client", prefetch_count=0))
        for number in range(HELD, HELD + 100):
            survivor.expect_message(str(number), redelivered=None)
        process.kill()
        for number in range(HELD):
            message = survivor.expect_message(str(number), redelivered="true", delivery_count="2")
    survivor.send(frames.ack(id=message["ack"], receipt="all"))
    survivor.expect_receipt("all")
    survivor.disconnect()


def test_messages_of_a_killed_consumer_are_shared_by_the_others(
    client: Clients, broker: BrokerProcess, queue: str
) -> None:
    """Each of the others gets its share in order, and nothing comes twice."""
    publisher = client(timeout=30)
    survivors = [client(timeout=30) for _ in range(4)]
    publisher.send(*(frames.send(queue, str(number)) for number in range(HELD)))
    with consumer(broker, queue, "client-individual", HELD) as process:
        assert process.stdout is not None
        for number in range(HELD):
            assert process.stdout.readline() == f"took {number}\n"
        for wire in survivors:
            wire.subscribe(queue, ack="auto")
        process.kill()
        received = [take_share(wire) for wire in survivors]
    assert all(part == sorted(part) for part in received)
    assert sorted(number for part in received for number in part) == list(range(HELD))


def take_share(wire: Wire) -> list[int]:
    """Returns the numbers that one of four remaining consumers gets; they take turns."""
    return [int(wire.expect("MESSAGE", redelivered="true").text) for _ in range(HELD // 4)]


@pytest.mark.timeout(120)
def test_consumers_that_join_and_leave_while_producers_run_lose_nothing(start_broker: StartBroker) -> None:
    tally = churn(start_broker(), consumers=1000, present=80)
    assert len(tally.accepted) > 1000


def cpu_s(pid: int) -> float:
    """Returns the seconds of processor time that all threads of a process have used."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def test_a_consumer_that_nacks_everything_uses_little_processor_time(start_broker: StartBroker) -> None:
    """100 messages are redelivered again and again, each after a longer delay; other clients do not wait for them."""
    broker = start_broker(max_deliveries=1_000_000)
    with Wire(broker.port) as refuser, Wire(broker.port) as other:
        refuser.connect()
        other.connect()
        refuser.subscribe("/queue/refused", ack="client-individual")
        other.send(*(frames.send("/queue/refused", str(number)) for number in range(100)))
        began, ran = time.monotonic(), cpu_s(broker.pid)
        refused = [0] * 100
        while time.monotonic() - began < BUSY_S or min(refused) < 3:
            message = refuser.expect("MESSAGE")
            refused[int(message.text)] += 1
            assert message.header("delivery-count") in (str(refused[int(message.text)]), None)
            refuser.send(frames.nack(id=message["ack"]))
        share = (cpu_s(broker.pid) - ran) / (time.monotonic() - began)
        other.subscribe("/queue/served")
        other.send(frames.send("/queue/served", "at once"))
        other.expect_message("at once")
    assert share < BUSY_SHARE_MAX, f"{share:.0%} of a core"


BODY = 16 << 10
WINDOW = 8


def publish_until_refused(publisher: Wire, queue: str) -> int:
    """Sends until the broker refuses a SEND with E-MEMORY; returns how many it accepted."""
    accepted = 0
    while True:
        numbers = range(accepted, accepted + WINDOW)
        publisher.send(*(frames.send_counted(queue, body(at, BODY), receipt=str(at)) for at in numbers))
        for _ in numbers:
            answer = publisher.recv_frame()
            if answer.command == "ERROR":
                assert answer["code"] == "E-MEMORY", answer
                assert answer["receipt-id"] == str(accepted), answer
                publisher.expect_closed()
                return accepted
            assert (answer.command, answer["receipt-id"]) == ("RECEIPT", str(accepted)), answer
            accepted += 1


def test_a_full_memory_refuses_publishers_and_loses_nothing(start_broker: StartBroker) -> None:
    """A queue without consumers fills the memory; a client that holds unacknowledged deliveries may still send."""
    broker = start_broker(memory_limit="32MiB", publish_timeout="500ms")
    with Wire(broker.port) as worker, Wire(broker.port) as publisher, Wire(broker.port) as second:
        worker.connect()
        worker.subscribe("/queue/work", ack="client-individual")
        worker.send(frames.send("/queue/work", "job"))
        job = worker.expect_message("job")
        publisher.connect()
        accepted = publish_until_refused(publisher, "/queue/full")
        assert accepted * BODY > 16 << 20, f"refused after {accepted} messages"
        second.connect()
        # The frames that the first publisher had in transit when it was cut off left a little room.
        more = publish_until_refused(second, "/queue/full")
        assert more * BODY < 2 << 20, f"{more} more accepted"
        worker.send_and_wait("/queue/results", "done")
        worker.send(frames.begin("t"), frames.send("/queue/results", "done too", transaction="t"))
        worker.send(frames.ack(id=job["ack"], transaction="t"), frames.commit("t", receipt="committed"))
        worker.expect_receipt("committed")
        take_all(broker, "/queue/full", [*range(accepted), *range(more)])
        worker.subscribe("/queue/results", "1")
        worker.expect_message("done")
        worker.expect_message("done too")
    with Wire(broker.port) as late:
        late.connect()
        late.send_and_wait("/queue/full", "there is room again")


def fill_past(broker: BrokerProcess, publisher: Wire, queue: str, share: float) -> int:
    """Sends until that share of `memory_limit` is held; returns how many messages were sent."""
    numbers = 0
    while True:
        memory = broker_memory(broker)
        if memory["held_bytes"] > memory["limit_bytes"] * share:
            return numbers
        publisher.send(frames.send_counted(queue, body(numbers, BODY)))
        numbers += 1


def broker_memory(broker: BrokerProcess) -> dict[str, int]:
    """Returns the bytes held, and the limit."""
    with Wire(broker.port) as observer:
        memory: dict[str, int] = answer(observer, "memory")
        return memory


@pytest.mark.parametrize("destination", ["/queue/work/a", "/queue/work/>"])
def test_a_new_worker_empties_a_full_memory(start_broker: StartBroker, destination: str) -> None:
    """Deliveries in flight fill all that SENDs may fill; after their worker has gone only another can free memory."""
    broker = start_broker(memory_limit="16MiB", publish_timeout="60s")
    with Wire(broker.port) as worker, Wire(broker.port) as publisher, Wire(broker.port) as late, ExitStack() as stack:
        worker.connect()
        worker.subscribe("/queue/work/a", "1", ("prefetch-count", "100000"), ack="client-individual")
        reading = threading.Thread(target=rest_of, args=(worker,))
        reading.start()
        publisher.connect()
        sent = fill_past(broker, publisher, "/queue/work/a", 0.95)
        for _ in range(16):  # what waits in their outboxes counts, too
            waiting = stack.enter_context(Wire(broker.port))
            waiting.connect()
            waiting.send(*(frames.send_counted("/queue/other", body(0, 12 << 10)) for _ in range(4)))
        eventually(lambda: broker_memory(broker)["held_bytes"] > 0.97 * (16 << 20), "97 % of the limit is held")
        worker.half_close()
        reading.join()
        memory = broker_memory(broker)
        assert memory["held_bytes"] > memory["limit_bytes"] * 0.95, memory
        late.connect()
        late.subscribe("/topic/acknowledging")
        late.disconnect()
        take_all(broker, destination, range(sent))
        publisher.send_and_wait("/topic/nobody", "")


def take_all(broker: BrokerProcess, queue: str, numbers: Sequence[int]) -> None:
    """A new consumer gets exactly the messages with these numbers, in order, and acknowledges them."""
    with Wire(broker.port) as wire:
        wire.connect()
        wire.send(frames.subscribe(queue, "0", ack="client", prefetch_count=100))
        for at, number in enumerate(numbers, 1):
            message = wire.expect("MESSAGE")
            assert message.body[:8] == b"%08d" % number
            if at % 50 == 0 or at == len(numbers):
                wire.send(frames.ack(id=message["ack"]))
        wire.send(frames.disconnect(receipt="bye"))
        wire.expect_receipt("bye")


def test_publishers_that_wait_for_memory_continue_when_some_is_free(start_broker: StartBroker) -> None:
    """Twice the limit goes through a queue whose consumer subscribes only after the publisher is held back."""
    broker = start_broker(memory_limit="32MiB")
    count = (64 << 20) // BODY
    accepted = threading.Semaphore(0)

    def publish() -> None:
        with Wire(broker.port, timeout=40) as publisher:
            publisher.connect()
            for first in range(0, count, WINDOW):
                numbers = range(first, first + WINDOW)
                publisher.send(*(frames.send_counted("/queue/slow", body(at, BODY), receipt="r") for at in numbers))
                for _ in numbers:
                    publisher.expect_receipt("r")
                    accepted.release()

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    for _ in range((16 << 20) // BODY):
        assert accepted.acquire(timeout=60)
    take_all(broker, "/queue/slow", range(count))
    thread.join(20)
    assert not thread.is_alive()
    eventually(lambda: broker.alive, "the broker is alive")
