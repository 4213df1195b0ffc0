"""A disk of 64 MiB that fills up and is cleared again by its consumers (docs/store.md, "A full disk")."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import frames
from tests.support.diagnostics import answer
from tests.support.queues import until_receipt
from tests.support.stored import PERSISTENT, Stored, send_stored, waiting
from tests.support.wire import Wire

SIZE = 64 << 20
BODY = 10_000
WINDOW = 20
"""The RECEIPTs that are due at a time."""
PATIENCE = 30
"""How many seconds it may take until there is room again."""
QUEUE = "/queue/full"


# With SQLite, acknowledgements may wait on a full disk: docs/store.md.
pytestmark = pytest.mark.parametrize("store", ["file"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.fixture
def stored(disk: Path, store: str, writers: int) -> Iterator[Stored]:
    """A broker on that disk."""
    stored = Stored(disk / "store", store=store, writers=writers)
    stored.start()
    yield stored
    stored.close()


def text(number: int) -> str:
    """A body that tells its number."""
    return f"{number:06}".ljust(BODY, ".")


def fill(wire: Wire) -> int:
    """Sends messages until one is refused; returns how many had their RECEIPT."""
    sent = confirmed = 0
    while True:
        while sent < confirmed + WINDOW:
            wire.send(frames.send_counted(QUEUE, text(sent), PERSISTENT, receipt=str(sent)))
            sent += 1
        frame = wire.recv_frame()
        if frame.command == "ERROR":
            assert frame["code"] == "E-STORE-FULL", frame
            return confirmed
        assert frame["receipt-id"] == str(confirmed)
        confirmed += 1


def acknowledge(wire: Wire, count: int) -> set[str]:
    """Acknowledges the first messages, each with a RECEIPT; returns their bodies."""
    wire.send(frames.subscribe(QUEUE, "s", ack="client-individual", prefetch_count=WINDOW))
    gone: set[str] = set()
    confirmed = 0
    while confirmed < count:
        frame = wire.recv_frame()
        if frame.command == "RECEIPT":
            assert frame["receipt-id"] == f"gone {confirmed}"
            confirmed += 1
        elif len(gone) < count:
            assert frame.command == "MESSAGE", frame
            wire.send(frames.ack(id=frame["ack"], receipt=f"gone {len(gone)}"))
            gone.add(frame.text)
    wire.send(frames.unsubscribe("s", receipt="over"))
    until_receipt(wire, "over")
    return gone


def await_room(stored: Stored) -> None:
    """Waits until the store takes messages again."""
    deadline = time.monotonic() + PATIENCE
    while answer(stored.client(), "store")["state"] != "ready":
        assert time.monotonic() < deadline, answer(stored.client(), "store")
        time.sleep(0.05)


@pytest.mark.timeout(120)
def test_a_disk_that_fills_up_is_cleared_by_acknowledgements(stored: Stored, topic: str) -> None:
    """Nothing that had its RECEIPT is lost, nothing comes back that was acknowledged with one, and the rest goes on."""
    confirmed = fill(stored.client())
    assert confirmed * BODY > SIZE // 8
    assert answer(stored.client(), "store")["state"] == "full"
    other = stored.client()
    other.subscribe(topic, "t")
    other.send(frames.send(topic, "passes"), frames.send("/queue/other", "passes, too", receipt="accepted"))
    other.expect_message("passes", subscription="t")
    other.expect_receipt("accepted")
    gone = acknowledge(stored.client(), confirmed // 2)
    await_room(stored)
    send_stored(stored.client(), "/queue/later", *(text(number) for number in range(100)))
    stored.restart()
    found = waiting(stored.client(), QUEUE)
    assert found == sorted(found)
    assert not gone & set(found)
    assert {text(number) for number in range(confirmed)} - gone <= set(found)
    assert waiting(stored.client(), "/queue/later") == [text(number) for number in range(100)]


@pytest.mark.timeout(120)
def test_a_full_disk_can_be_started_on(stored: Stored) -> None:
    """By a process that was killed as by one that has ended in order."""
    confirmed = fill(stored.client())
    for end in (stored.kill, stored.end):
        end()
        stored.start()
        found = waiting(stored.client(), QUEUE)
        assert {text(number) for number in range(confirmed)} <= set(found)
    gone = acknowledge(stored.client(), len(found) - 10)
    await_room(stored)
    stored.restart()
    assert set(waiting(stored.client(), QUEUE)) == set(found) - gone
