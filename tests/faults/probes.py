"""What the fault tests look at and load the broker with."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

SMALL_BUFFER = 4096
"""A receive buffer for slow readers, so that the kernel hides little of their slowness."""


def memory_kib(pid: int, field: str = "VmRSS") -> int:
    """Resident memory of a process; `VmHWM` is its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"no {field} of {pid}")


def descriptors(pid: int) -> int:
    """Open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def body(number: int, size: int) -> bytes:
    """A body that begins with its number."""
    return b"%08d" % number + b"." * (size - 8)


def flood(publisher: Wire, topic: str, count: int, size: int, *, start: int = 0) -> None:
    """SENDs of numbered bodies, as fast as the broker takes them; returns when all are processed."""
    batch = max(1, (1 << 18) // size)
    for first in range(start, start + count, batch):
        numbers = range(first, min(first + batch, start + count))
        publisher.send(*(frames.send_counted(topic, body(number, size)) for number in numbers))
    publisher.send_and_wait("/topic/nobody-hears-this", "")


class Listener(threading.Thread):
    """Reads every MESSAGE up to the one with number `last`; keeps their numbers, and when it was silent."""

    def __init__(self, wire: Wire, last: int) -> None:
        super().__init__(daemon=True)
        self.wire = wire
        self.last = last
        self.numbers: list[int] = []
        self.silences: list[tuple[float, float]] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Reads; a failure is raised again by `result`."""
        try:
            self._read()
        except BaseException as failure:
            self.failure = failure

    def _read(self) -> None:
        before = None
        while not self.numbers or self.numbers[-1] < self.last:
            message = self.wire.expect("MESSAGE")
            now = time.monotonic()
            if before is not None and now - before > 0.25:
                self.silences.append((before, now))
            before = now
            self.numbers.append(int(message.body[:8]))

    def result(self, timeout: float = 60.0) -> list[int]:
        """The numbers in the order they came."""
        self.join(timeout)
        assert not self.is_alive(), f"still waiting after {len(self.numbers)} messages"
        if self.failure is not None:
            raise self.failure
        return self.numbers


def rest_of(wire: Wire) -> tuple[list[Frame], bool]:
    """Every whole frame up to the end, and whether the end was in order (not a reset, not inside a frame)."""
    found: list[Frame] = []
    with contextlib.suppress(ConnectionResetError):
        while True:
            frame = wire._parser.next_frame()
            if frame is not None:
                found.append(frame)
            elif wire._ended or not wire.receive_some():
                return found, wire._parser.unread.strip(b"\n") == b""
    return found, False
