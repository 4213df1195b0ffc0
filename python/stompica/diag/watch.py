"""A query asked again and again: an iterator, and an async iterator, of records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from stompica.errors import NotRunning

T = TypeVar("T")

INTERVAL_MIN_S = 0.01
"""Shorter intervals are refused: asking costs the broker's threads a little each time."""


class Watch(Generic[T]):
    """Records of one query, one each `interval` seconds, the first at once.

    `for record in watch` and `async for record in watch` both work. An interval that a slow answer has used up is left
    out, never made up for. It ends on `close`, which any thread may call, and when a broker in this process has
    stopped. Errors of a remote broker are raised from the iteration.
    """

    def __init__(self, ask: Callable[[], T], interval: float) -> None:
        if not interval >= INTERVAL_MIN_S:
            raise ValueError(f"interval is {interval!r}: it must be at least {INTERVAL_MIN_S} s")
        self._ask = ask
        self._interval = interval
        self._due = time.monotonic()
        self._closed = threading.Event()

    def close(self) -> None:
        """Ends the iteration; who waits in it is woken."""
        self._closed.set()

    def __iter__(self) -> Watch[T]:
        return self

    def __next__(self) -> T:
        if self._closed.wait(self._due - time.monotonic()):
            raise StopIteration
        try:
            return self._take()
        except NotRunning:
            self.close()
            raise StopIteration from None

    def __aiter__(self) -> Watch[T]:
        return self

    async def __anext__(self) -> T:
        import asyncio  # here, because it takes longer to load than everything else together

        while not self._closed.is_set():
            wait = self._due - time.monotonic()
            if wait > 0:
                # In short steps, so that a close by another thread is seen.
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

    def __enter__(self) -> Watch[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
