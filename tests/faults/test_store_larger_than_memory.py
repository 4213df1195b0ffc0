"""With a store, queues may be much larger than `memory_limit`: what does not fit is on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import frames
from tests.support.diagnostics import answer
from tests.support.probes import memory_kib
from tests.support.queues import unsubscribe_and_wait, until_receipt
from tests.support.stored import PERSISTENT, Stored
from tests.support.wire import Wire

LIMIT = 32 << 20
"""The `memory_limit`."""
GROWTH_KIB_MAX = 3 * LIMIT >> 10
"""How much larger the process may become than it was at its start."""
SIZE = 10_000
COUNT = 20_000
BATCH = 50


@pytest.fixture
def stored(tmp_path: Path, writers: int) -> Iterator[Stored]:
    """A directory with a broker that has little memory."""
    stored = Stored(tmp_path / "store", writers=writers, memory_limit=LIMIT)
    stored.start()
    yield stored
    stored.close()


def body(number: int) -> bytes:
    """A body that tells its number, and that no other message has."""
    return b"%08d" % number + hashlib.sha256(b"%d" % number).digest() * (SIZE // 32)


def fill(wire: Wire, queue: str, first: int, last: int, *headers: frames.Header) -> None:
    """Sends these messages; the last one of each batch asks for a RECEIPT, and a few may be due."""
    due = []
    for start in range(first, last, BATCH):
        numbers = range(start, min(start + BATCH, last))
        receipts = [None] * (len(numbers) - 1) + [str(start)]
        wire.send(
            *(
                frames.send_counted(queue, body(number), *headers, receipt=receipt)
                for number, receipt in zip(numbers, receipts, strict=True)
            )
        )
        due.append(str(start))
        while len(due) > 8 or (due and numbers[-1] == last - 1):
            wire.expect_receipt(due.pop(0))


def drain(wire: Wire, queue: str, first: int, last: int) -> None:
    """Consumes these messages, which must come in order, and acknowledges them; the last ACK has a RECEIPT."""
    wire.send(frames.subscribe(queue, "drain", ack="client", prefetch_count=4 * BATCH))
    for number in range(first, last):
        message = wire.expect_message(subscription="drain", destination=queue)
        assert message.body == body(number), f"expected {number}, got {message.body[:8]!r}"
        if number == last - 1:
            wire.send(frames.ack(id=message["ack"], receipt="drained"))
            until_receipt(wire, "drained")
        elif number % BATCH == BATCH - 1:
            wire.send(frames.ack(id=message["ack"]))
    unsubscribe_and_wait(wire, "drain")


@pytest.fixture(scope="session")
def idle_kib(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The resident memory of a broker that has nothing to do, in KiB."""
    idle = Stored(tmp_path_factory.mktemp("idle"))
    try:
        idle.start()
        idle.client().barrier()
        return memory_kib(idle.broker.pid)
    finally:
        idle.close()


def expect_little_memory(stored: Stored, idle_kib: int) -> None:
    """The broker has never had much more memory than `memory_limit`, the interpreter not counted."""
    most = memory_kib(stored.broker.pid, "VmHWM") - idle_kib
    assert most < GROWTH_KIB_MAX, f"{most} KiB"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("headers", [(PERSISTENT,), ()], ids=["persistent", "transient"])
def test_a_large_queue_is_filled_and_consumed_in_order(
    stored: Stored, idle_kib: int, headers: tuple[frames.Header, ...]
) -> None:
    """No publisher is refused, although nobody consumes meanwhile."""
    fill(stored.client(), "/queue/large", 0, COUNT, *headers)
    drain(stored.client(), "/queue/large", 0, COUNT)
    stored.client().barrier()
    expect_little_memory(stored, idle_kib)


@pytest.mark.timeout(300)
def test_what_is_paged_out_and_not_persistent_ends_with_the_process(stored: Stored) -> None:
    """Nothing of it is found at the next start, and its room on disk is given back, also after a crash."""
    for end in (stored.kill, stored.end):
        fill(stored.client(), "/queue/large", 0, COUNT // 2)
        assert any((stored.directory / "paged").glob("*.log"))
        fill(stored.client(), "/queue/small", 0, 1, PERSISTENT)
        end()
        stored.start()
        drain(stored.client(), "/queue/small", 0, 1)
        assert not any((stored.directory / "paged").glob("*.log"))


@pytest.mark.timeout(300)
def test_a_large_queue_survives_a_restart(stored: Stored) -> None:
    """Half of it is consumed by a third process."""
    fill(stored.client(), "/queue/large", 0, COUNT, PERSISTENT)
    store = answer(stored.client(), "store")
    assert store["messages"] == COUNT and 0 < store["paged_messages"] <= COUNT
    stored.restart()
    drain(stored.client(), "/queue/large", 0, COUNT // 2)
    stored.restart()
    drain(stored.client(), "/queue/large", COUNT // 2, COUNT)


@pytest.mark.timeout(300)
def test_reading_the_store_takes_no_more_memory_than_running(stored: Stored, idle_kib: int) -> None:
    """docs/delivery.md, "What memory_limit counts": nothing of this size is left out."""
    fill(stored.client(), "/queue/large", 0, COUNT, PERSISTENT)
    stored.restart()
    stored.client().barrier()
    expect_little_memory(stored, idle_kib)


@pytest.mark.timeout(300)
def test_other_queues_and_topics_are_served_meanwhile(stored: Stored, topic: str, idle_kib: int) -> None:
    publisher, other, consumer = stored.client(), stored.client(), stored.client()
    consumer.subscribe(topic, "t")
    consumer.subscribe("/queue/lively", "q", ack="client-individual", prefetch_count=1)
    for start in range(0, COUNT, COUNT // 20):
        fill(publisher, "/queue/large", start, start + COUNT // 20, PERSISTENT)
        other.send(frames.send(topic, str(start)))
        consumer.expect_message(str(start), subscription="t")
        other.send(frames.send("/queue/lively", str(start), PERSISTENT))
        message = consumer.expect_message(str(start), subscription="q")
        consumer.send(frames.ack(id=message["ack"]))
    assert answer(other, "memory")["held_bytes"] < LIMIT
    expect_little_memory(stored, idle_kib)
