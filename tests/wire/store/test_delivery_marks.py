"""Messages that were delivered before the process ended are marked as delivered again."""

from __future__ import annotations

from pathlib import Path

from tests.support import frames
from tests.support.stored import PERSISTENT, Stored, send_stored

QUEUES = [f"/queue/marked/{number}" for number in range(8)]
PUBLISHERS = 4
COMMITS = 200


def test_messages_of_transactions_are_marked_as_delivered_again(tmp_path: Path, store: str) -> None:
    """All were delivered, all COMMITs have their RECEIPT, and each queue has stored a later message."""
    stored = Stored(tmp_path / "store", store=store, writers=4)
    try:
        stored.start()
        consumer = stored.client()
        publishers = [stored.client() for _ in range(PUBLISHERS)]
        for queue in QUEUES:
            consumer.subscribe(queue, queue, ack="client-individual", prefetch_count=0)
        for number in range(COMMITS):
            for publisher in publishers:
                sends = (frames.send(queue, "x", PERSISTENT, transaction="t") for queue in QUEUES)
                publisher.send(frames.begin("t"), *sends, frames.commit("t", receipt=str(number)))
        for publisher in publishers:
            for number in range(COMMITS):
                publisher.expect_receipt(str(number))
        for _ in range(COMMITS * PUBLISHERS * len(QUEUES)):
            consumer.expect_message("x")
        for queue in QUEUES:
            send_stored(publishers[0], queue, "last")
        stored.restart()
        consumer = stored.client()
        for queue in QUEUES:
            consumer.send(frames.subscribe(queue, queue, ack="client-individual", prefetch_count=0))
        expected = (COMMITS * PUBLISHERS + 1) * len(QUEUES)
        messages = [consumer.expect_message() for _ in range(expected)]
        unmarked = [one for one in messages if one.text == "x" and one.header("redelivered") != "true"]
        assert not unmarked, f"{len(unmarked)} of {expected}"
    finally:
        stored.close()
