"""What the tests measure of a broker process, and how they load it."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

SMALL_BUFFER = 4096
"""A receive buffer for slow readers: small, so that the kernel buffers little of what they do not read."""


def memory_kib(pid: int, field: str = "VmRSS") -> int:
    """Returns the resident memory of a process; `VmHWM` is its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"no {field} of {pid}")


def descriptors(pid: int) -> int:
    """Returns the number of open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.contextmanager
def raised_descriptor_limit() -> Iterator[int]:
    """Raises the soft descriptor limit of this process as far as possible; yields the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def body(number: int, size: int) -> bytes:
    """Returns a body that begins with its number."""
    return b"%08d" % number + b"." * (size - 8)


def flood(publisher: Wire, topic: str, count: int, size: int, *, start: int = 0) -> None:
    """Sends numbered bodies as fast as the broker takes them; returns when all are processed."""
    batch = max(1, (1 << 18) // size)
    for first in range(start, start + count, batch):
        numbers = range(first, min(first + batch, start + count))
        publisher.send(*(frames.send_counted(topic, body(number, size)) for number in numbers))
    publisher.send_and_wait("/topic/nobody-hears-this", "")


class Listener(threading.Thread):
    """Reads every MESSAGE up to number `last`; records their numbers and every pause longer than 0.25 s."""

    def __init__(self, wire: Wire, last: int) -> None:
        super().__init__(daemon=True)
        self.wire = wire
        self.last = last
        self.numbers: list[int] = []
        self.silences: list[tuple[float, float]] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Reads; `result` raises a failure again."""
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
        """Returns the numbers in the order in which they came."""
        self.join(timeout)
        assert not self.is_alive(), f"still waiting after {len(self.numbers)} messages"
        if self.failure is not None:
            raise self.failure
        return self.numbers


def rest_of(wire: Wire) -> tuple[list[Frame], bool]:
    """Returns all complete frames up to the end, and whether the stream ended in order (no reset, no partial frame)."""
    found: list[Frame] = []
    with contextlib.suppress(ConnectionResetError):
        while True:
            frame = wire._parser.next_frame()
            if frame is not None:
                found.append(frame)
            elif wire._ended or not wire.receive_some():
                return found, wire._parser.unread.strip(b"\n") == b""
    return found, False
