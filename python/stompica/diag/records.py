"""What DIAG answers, as typed records: one frozen dataclass for each query, units in the names.

Counters count from the start of the broker unless their text says otherwise.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stompica.errors import StompicaError


class DiagError(StompicaError):
    """DIAG can't answer: an unknown query, a broker that can't be reached, an answer that is none."""


@dataclass(frozen=True)
class Session:
    """Who is connected."""

    clients: int
    """Open connections."""
    websockets: int
    """Those of them that are WebSockets."""
    stomp_connected: int
    """Those that have had CONNECTED."""
    subscriptions: int


@dataclass(frozen=True)
class WsBuffer:
    """The pool that output buffers come from."""

    allocated: int
    """Buffers ever made."""
    hits: int
    """Times one was used again."""
    misses: int
    """Times one had to be made."""


@dataclass(frozen=True)
class Stale:
    """Frames and messages that wait."""

    input: int = field(metadata={"key": "in"})
    """Frames accepted and not yet routed."""
    output: int = field(metadata={"key": "out"})
    """Frames routed and not yet written."""
    stale: int = 0
    """Messages that wait for a subscriber because of `TTL`."""


@dataclass(frozen=True)
class Network:
    """Traffic and how it was handled."""

    bytes_in: int
    bytes_out: int
    frames_in: int
    messages_in: int
    """SENDs accepted."""
    deliveries: int
    """MESSAGEs given to connections."""
    reads: int
    """System calls that read."""
    writes: int
    """System calls that wrote."""
    dropped_websocket_frames: int
    fixed_underruns: int
    """Always 0; kept for clients of the ancestor."""
    cached_destinations: int
    """Destinations whose subscribers are known without a search; a level, not a counter."""
    connections: int
    """Open now."""
    accepted: int
    refused: int
    closed: int
    errors: int
    """ERROR frames sent."""
    dropped: int
    """Deliveries that were dropped for slow consumers."""


@dataclass(frozen=True)
class Bucket:
    """`count` passes that took from `low_ns` to `high_ns`."""

    low_ns: int
    high_ns: int
    count: int


@dataclass(frozen=True)
class Stage:
    """Timing of one stage of the broker, over all its threads."""

    count: int
    """Passes."""
    total_ns: int
    buckets: tuple[Bucket, ...] = ()
    """A histogram of the passes; buckets that are empty are left out."""

    @property
    def mean_ns(self) -> float:
        """Mean time of a pass; 0 where there was none."""
        return self.total_ns / self.count if self.count else 0.0

    def quantile_ns(self, q: float) -> int:
        """Upper bound of the bucket that holds the quantile `q` (0 to 1); 0 where there was no pass."""
        passed, wanted = 0, q * sum(bucket.count for bucket in self.buckets)
        for bucket in self.buckets:
            passed += bucket.count
            if passed >= wanted:
                return bucket.high_ns
        return 0


@dataclass(frozen=True)
class Benchmark:
    """Internal timings. They are taken for a minute after each time somebody asked, and not otherwise."""

    enabled_ms_left: int
    """Until timing ends unless somebody asks again."""
    stages: Mapping[str, Stage]
    """`read`, `parse`, `route`, `encode`, `write`, and `turn`: one pass of a thread's loop."""


@dataclass(frozen=True)
class Shard:
    """One writer thread."""

    shard: int
    """Its number, from 0."""
    connections: int
    subscriptions: int
    queues: int
    turns: int
    """Passes of its loop."""
    mailbox_frames: int
    """Frames that other threads brought."""
    frames_in: int
    deliveries: int
    parked: int
    """Connections whose reading is paused now."""
    cpu_us: int
    """CPU time of the thread."""


@dataclass(frozen=True)
class Memory:
    """Bytes held, and the limit."""

    held_bytes: int
    limit_bytes: int
    """The setting `memory_limit`."""
    short: bool
    """Publishers are paused for lack of memory."""
    outbox_bytes: int
    input_bytes: int
    chunk_bytes: int
    queue_bytes: int


@dataclass(frozen=True)
class Queue:
    """One work queue."""

    name: str
    kind: str
    size: int
    """Messages waiting and in flight."""
    waiting_bytes: int
    in_flight: int
    """Delivered and not yet acknowledged."""
    consumers: int
    enqueued: int
    dequeued: int


@dataclass(frozen=True)
class Ack:
    """Deliveries in flight of one subscription."""

    connection: int
    subscription: str
    destination: str
    mode: str
    """`auto`, `client` or `client-individual`."""
    in_flight: int
    oldest_ms: int
    """Age of the oldest delivery in flight."""


@dataclass(frozen=True)
class Store:
    """Where queued messages are kept."""

    kind: str


@dataclass(frozen=True)
class Slow:
    """A connection that reads more slowly than it is sent to."""

    connection: int
    peer: str
    outbox_bytes: int
    """Bytes that wait for it."""
    full_ms: int
    """How long its outbox has been full."""
    dropped: int
    """Deliveries dropped for it."""


Record: TypeAlias = (
    Session
    | WsBuffer
    | Stale
    | Network
    | Benchmark
    | Memory
    | Store
    | int
    | tuple[str, ...]
    | tuple[Shard, ...]
    | tuple[Queue, ...]
    | tuple[Ack, ...]
    | tuple[Slow, ...]
)
"""What a query is answered with."""

QUERIES: dict[str, Any] = {
    "session": Session,
    "ws_buffer": WsBuffer,
    "stale": Stale,
    "session-size": int,
    "session-encoded-size": int,
    "session-connected-size": int,
    "pubsub-size": int,
    "subs": tuple[str, ...],
    "network": Network,
    "benchmark": Benchmark,
    "shards": tuple[Shard, ...],
    "memory": Memory,
    "queues": tuple[Queue, ...],
    "ack": tuple[Ack, ...],
    "store": Store,
    "slow": tuple[Slow, ...],
}
"""Every query and the type of its answer."""


def check_query(query: str) -> None:
    """DiagError for a query that does not exist."""
    if query not in QUERIES:
        raise DiagError(f"unknown DIAG query {query!r}: there are {', '.join(QUERIES)}")


def decode(query: str, answer: Any) -> Any:
    """The record of a JSON answer; names that are not known here are passed over.

    DiagError where something is missing, or is not what it has to be.
    """
    check_query(query)
    return _value(QUERIES[query], answer, query)


_Fields: TypeAlias = tuple[tuple[str, str, Any, bool], ...]
_known: dict[type[Any], _Fields] = {}


def _fields(kind: type[Any]) -> _Fields:
    """Attribute, JSON key, type, and whether it must be there, of each field."""
    if kind not in _known:
        hints = typing.get_type_hints(kind)
        _known[kind] = tuple(
            (item.name, item.metadata.get("key", item.name), hints[item.name], item.default is dataclasses.MISSING)
            for item in dataclasses.fields(kind)
        )
    return _known[kind]


def _value(wanted: Any, value: Any, where: str) -> Any:
    if wanted is Bucket and isinstance(value, list) and len(value) == 3:
        return Bucket(*(_value(int, part, where) for part in value))
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return _object(wanted, value, where)
    origin = typing.get_origin(wanted)
    if origin is tuple:
        if not isinstance(value, list):
            raise DiagError(f"DIAG's {where} is {value!r}, not a list")
        inner = typing.get_args(wanted)[0]
        return tuple(_value(inner, item, where) for item in value)
    if origin is not None:
        if not isinstance(value, dict):
            raise DiagError(f"DIAG's {where} is {value!r}, not an object")
        inner = typing.get_args(wanted)[1]
        return types.MappingProxyType({name: _value(inner, item, f"{where}.{name}") for name, item in value.items()})
    if wanted is str and type(value) is int:
        return str(value)
    if type(value) is not wanted:
        raise DiagError(f"DIAG's {where} is {value!r}, not {wanted.__name__}")
    return value


def _object(wanted: type[Any], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DiagError(f"DIAG's {where} is {value!r}, not an object")
    values: dict[str, Any] = {}
    for name, key, kind, required in _fields(wanted):
        if key in value:
            values[name] = _value(kind, value[key], f"{where}.{key}")
        elif required:
            raise DiagError(f"DIAG's answer to {where} lacks {key!r}: is the broker of another version?")
    return wanted(**values)


def plain(record: Any) -> Any:
    """A record as JSON would have it: objects, lists, numbers, texts; with DIAG's own names."""
    if isinstance(record, Bucket):
        return [record.low_ns, record.high_ns, record.count]
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {key: plain(getattr(record, name)) for name, key, _, _ in _fields(type(record))}
    if isinstance(record, Mapping):
        return {name: plain(item) for name, item in record.items()}
    if isinstance(record, tuple):
        return [plain(item) for item in record]
    return record
