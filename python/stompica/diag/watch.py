"""A query repeated at an interval: an iterator, and an async iterator, of records."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from stompica.errors import NotRunning

T = TypeVar("T")

INTERVAL_MIN_S = 0.01
"""Shorter intervals are refused: each query costs the broker's threads some time."""
INTERVAL_MAX_S = 86_400.0


def check_interval(interval: float, least: float = INTERVAL_MIN_S) -> None:
    """ValueError for an interval, in seconds, that is out of range."""
    if not least <= interval <= INTERVAL_MAX_S:
        raise ValueError(f"interval is {interval!r}: it must be from {least:g} to {INTERVAL_MAX_S:g} s")


class Watch(ABC, Generic[T]):
    """Records of one query, one every `interval` seconds, the first at once.

    `for record in watch` and `async for record in watch` both work. Records that a slow reader has missed are skipped.
    The iteration ends on `close`, which any thread may call, at the end of the `with` block, and when a broker in this
    process has stopped. If a remote broker fails, the iteration raises one DiagError and then ends.
    """

    @abstractmethod
    def close(self) -> None:
        """Ends the iteration and wakes a reader that waits in it. Idempotent."""

    def __iter__(self) -> Watch[T]:
        return self

    @abstractmethod
    def __next__(self) -> T: ...

    def __aiter__(self) -> Watch[T]:
        return self

    @abstractmethod
    async def __anext__(self) -> T: ...

    def __enter__(self) -> Watch[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Polled(Watch[T]):
    """Queries a broker in this process by a call.

    A subscription would need a connection, which would be counted in the answers, and would be no cheaper.
    """

    def __init__(self, ask: Callable[[], T], interval: float) -> None:
        check_interval(interval)
        self._ask = ask
        self._interval = interval
        self._due = time.monotonic()
        self._closed = threading.Event()

    def close(self) -> None:
        """See `Watch`."""
        self._closed.set()

    def __next__(self) -> T:
        if self._closed.wait(self._due - time.monotonic()):
            raise StopIteration
        try:
            return self._take()
        except NotRunning:
            self.close()
            raise StopIteration from None

    async def __anext__(self) -> T:
        import asyncio  # imported here: it takes longer to load than everything else together

        while not self._closed.is_set():
            wait = self._due - time.monotonic()
            if wait > 0:
                # In short steps, to notice a close by another thread.
                await asyncio.sleep(min(wait, 0.1))
                continue
            try:
                return await asyncio.to_thread(self._take)
            except NotRunning:
                self.close()
        raise StopAsyncIteration

    def _take(self) -> T:
        record = self._ask()
        now = time.monotonic()
        self._due += self._interval
        if self._due <= now:
            self._due = now + self._interval - (now - self._due) % self._interval
        return record
