"""The questions, typed: what `broker.diag` is, and what `stompica.diag.connect` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, overload

from stompica.diag.records import (
    Ack,
    Benchmark,
    Memory,
    Network,
    Queue,
    Record,
    Session,
    Shard,
    Slow,
    Stale,
    Store,
    WsBuffer,
    check_query,
    decode,
)
from stompica.diag.watch import Polled, Watch

Sizes: TypeAlias = Literal["session-size", "session-encoded-size", "session-connected-size", "pubsub-size"]


class Diag:
    """DIAG of one broker: `diag("session")` asks once, `diag.watch("network", interval=1.0)` again and again.

    `answer` takes a query to the broker and returns its answer as JSON has it.
    """

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self._answer = answer

    @overload
    def __call__(self, query: Literal["session"] = ...) -> Session: ...
    @overload
    def __call__(self, query: Literal["ws_buffer"]) -> WsBuffer: ...
    @overload
    def __call__(self, query: Literal["stale"]) -> Stale: ...
    @overload
    def __call__(self, query: Sizes) -> int: ...
    @overload
    def __call__(self, query: Literal["subs"]) -> tuple[str, ...]: ...
    @overload
    def __call__(self, query: Literal["network"]) -> Network: ...
    @overload
    def __call__(self, query: Literal["benchmark"]) -> Benchmark: ...
    @overload
    def __call__(self, query: Literal["shards"]) -> tuple[Shard, ...]: ...
    @overload
    def __call__(self, query: Literal["memory"]) -> Memory: ...
    @overload
    def __call__(self, query: Literal["queues"]) -> tuple[Queue, ...]: ...
    @overload
    def __call__(self, query: Literal["ack"]) -> tuple[Ack, ...]: ...
    @overload
    def __call__(self, query: Literal["store"]) -> Store: ...
    @overload
    def __call__(self, query: Literal["slow"]) -> tuple[Slow, ...]: ...
    @overload
    def __call__(self, query: str) -> Record: ...
    def __call__(self, query: str = "session") -> Any:
        """Asks once. DiagError for an unknown query or a broker that does not answer, NotRunning if it has stopped."""
        check_query(query)
        return decode(query, self._answer(query))

    @overload
    def watch(self, query: Literal["session"] = ..., *, interval: float = ...) -> Watch[Session]: ...
    @overload
    def watch(self, query: Literal["ws_buffer"], *, interval: float = ...) -> Watch[WsBuffer]: ...
    @overload
    def watch(self, query: Literal["stale"], *, interval: float = ...) -> Watch[Stale]: ...
    @overload
    def watch(self, query: Sizes, *, interval: float = ...) -> Watch[int]: ...
    @overload
    def watch(self, query: Literal["subs"], *, interval: float = ...) -> Watch[tuple[str, ...]]: ...
    @overload
    def watch(self, query: Literal["network"], *, interval: float = ...) -> Watch[Network]: ...
    @overload
    def watch(self, query: Literal["benchmark"], *, interval: float = ...) -> Watch[Benchmark]: ...
    @overload
    def watch(self, query: Literal["shards"], *, interval: float = ...) -> Watch[tuple[Shard, ...]]: ...
    @overload
    def watch(self, query: Literal["memory"], *, interval: float = ...) -> Watch[Memory]: ...
    @overload
    def watch(self, query: Literal["queues"], *, interval: float = ...) -> Watch[tuple[Queue, ...]]: ...
    @overload
    def watch(self, query: Literal["ack"], *, interval: float = ...) -> Watch[tuple[Ack, ...]]: ...
    @overload
    def watch(self, query: Literal["store"], *, interval: float = ...) -> Watch[Store]: ...
    @overload
    def watch(self, query: Literal["slow"], *, interval: float = ...) -> Watch[tuple[Slow, ...]]: ...
    @overload
    def watch(self, query: str, *, interval: float = ...) -> Watch[Record]: ...
    def watch(self, query: str = "session", *, interval: float = 1.0) -> Watch[Any]:
        """A record each `interval` seconds, from 0.01 (remote: 0.1) to 86400: an iterator and an async iterator.

        DiagError at once for an unknown query, ValueError for an interval that can't be had.
        """
        check_query(query)
        return self._watch(query, interval)

    def _watch(self, query: str, interval: float) -> Watch[Any]:
        return Polled(lambda: self(query), interval)
