"""What was recorded survives the process, and readers learn whether they can go on."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from tests.support import frames
from tests.support.recorded import QUEUE, RECORD, TOPIC, numbers, record, replay
from tests.support.stored import Restart, Stored
from tests.support.waiting import eventually
from tests.support.wire import Wire


def test_history_survives_and_numbers_go_on(stored: Stored, restart: Restart) -> None:
    for round in range(3):
        for destination in [TOPIC, QUEUE]:
            record(stored.client(), destination, 20 * round + 1, 20)
        restart(stored)
        reader = stored.client()
        for id, destination in enumerate([TOPIC, QUEUE]):
            assert replay(reader, destination, str(id), "first")["recovered"] == "true"
            assert numbers(reader, str(id), 20 * round + 20) == list(range(1, 20 * round + 21))


def test_an_ordered_end_keeps_the_epoch_and_a_kill_does_not(stored: Stored) -> None:
    def epoch(first: int) -> str:
        record(stored.client(), TOPIC, first, 1)
        reader = stored.client()
        replay(reader, TOPIC, "r", f"seq={first}")
        return reader.expect_message(str(first))["epoch"]

    first = epoch(1)
    stored.end()
    stored.start()
    assert epoch(2) == first
    stored.restart()
    assert int(epoch(3)) > int(first)


def test_a_reader_goes_on_over_a_kill_if_it_has_seen_nothing_that_was_lost(stored: Stored) -> None:
    record(stored.client(), TOPIC, 1, 10)
    reader = stored.client()
    replay(reader, TOPIC, "r", "first")
    epoch = reader.expect_message("1")["epoch"]
    stored.restart()
    record(stored.client(), TOPIC, 11, 2)
    for start, recovered, expected in [("seq=5", "true", 5), ("seq=11", "true", 11), ("seq=12", "false", 11)]:
        reader = stored.client()
        receipt = replay(reader, TOPIC, "r", start, epoch=epoch, on_gap="first")
        assert receipt["recovered"] == recovered, start
        assert numbers(reader, "r", 13 - expected) == list(range(expected, 13))
    past = stored.client()
    past.send(frames.subscribe(TOPIC, "r", ("replay-from", "seq=12"), ("epoch", epoch), receipt="r"))
    past.expect_error("E-REPLAY-GONE", receipt_id="r")


def test_what_receipts_have_confirmed_is_there_after_a_kill(stored: Stored) -> None:
    """Publishers send as fast as they can until the kill; what had its RECEIPT is replayed, without a hole."""
    publishers = [stored.client() for _ in range(4)]
    confirmed = [0] * len(publishers)
    ready = threading.Event()

    def publish(at: int, wire: Wire) -> None:
        try:
            for number in range(1, 1_000_000):
                wire.send(
                    frames.send(f"/topic/rec/{at % 2}", f"{at} {number}", ("persistent", "true"), receipt=str(number))
                )
                if number > 50:
                    wire.expect_receipt(str(number - 50))
                    confirmed[at] = number - 50
                if number == 200:
                    ready.set()
        except (AssertionError, OSError):
            pass

    threads = [threading.Thread(target=publish, args=pair) for pair in enumerate(publishers)]
    for thread in threads:
        thread.start()
    assert ready.wait(60)
    stored.kill()
    for thread in threads:
        thread.join()
    stored.start()
    assert min(confirmed) > 0
    for topic in range(2):
        reader = stored.client()
        replay(reader, f"/topic/rec/{topic}", "r", "first")
        record(stored.client(), f"/topic/rec/{topic}", 0, 1)
        last: dict[int, int] = {}
        seq = 0
        while (message := reader.expect_message()).text != "0":
            seq += 1
            assert message["seq"] == str(seq)
            at, number = map(int, message.text.split())
            assert number == last.get(at, 0) + 1, "each publisher's messages are in order and without a hole"
            last[at] = number
        for at in range(topic, len(publishers), 2):
            assert last.get(at, 0) >= confirmed[at]


def size_of(directory: Path) -> int:
    """The bytes of the segments in a directory, of which some may be removed meanwhile."""
    size = 0
    for file in directory.glob("*.rec"):
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def test_the_oldest_history_goes_and_a_reader_learns_of_the_gap(tmp_path: Path, writers: int) -> None:
    stored = Stored(tmp_path / "store", writers=writers, record=RECORD, record_size="4MiB")
    try:
        stored.start()
        publisher = stored.client()
        body = "x" * 8000
        for _ in range(10):
            publisher.send(*(frames.send(TOPIC, body) for _ in range(150)))
            publisher.send_and_wait(TOPIC, body, ("persistent", "true"))
        probe = stored.client()
        while True:
            probe.subscribe(TOPIC, "p", ("replay-from", "first"))
            first = int(probe.expect_message()["seq"])
            probe.discard()
            probe = stored.client()
            if first > 1:
                break
        late = stored.client()
        late.send(frames.subscribe(TOPIC, "r", ("replay-from", "seq=1"), receipt="r"))
        late.expect_error("E-REPLAY-GONE", receipt_id="r")
        skipping = stored.client()
        receipt = replay(skipping, TOPIC, "r", "seq=1", on_gap="first")
        assert receipt["recovered"] == "false"
        assert int(skipping.expect_message(body)["seq"]) >= first
        recorded = tmp_path / "store" / "recorded"
        eventually(lambda: size_of(recorded) <= 4 << 20, "the oldest history is removed")
    finally:
        stored.close()


def test_receipts_due_leave_before_an_ordered_end(stored: Stored) -> None:
    publisher = stored.client()
    publisher.send(
        *(frames.send(TOPIC, str(number), ("persistent", "true"), receipt=str(number)) for number in range(1, 501))
    )
    publisher.expect_receipt("1")
    stored.broker.terminate()
    received = [frame for frame in publisher.frames_until_closed() if frame.command == "RECEIPT"]
    assert stored.broker.wait() == 0
    stored.start()
    reader = stored.client()
    replay(reader, TOPIC, "r", "first", replay_until=f"seq={len(received) + 1}")
    assert numbers(reader, "r", len(received) + 1) == list(range(1, len(received) + 2))
