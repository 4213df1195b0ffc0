"""DIAG's answers as typed records: one frozen dataclass for each query, units in the names.

Counters count from the start of the broker. "Now" marks a current level, which goes up and down.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stompica.diag.stages import NEVER, Bucket, Stage
from stompica.errors import StompicaError


class DiagError(StompicaError):
    """DIAG failed: an unknown query, a broker that can't be reached, or an invalid answer."""


@dataclass(frozen=True)
class Session:
    """Connections and subscriptions, now."""

    clients: int
    """Open connections."""
    websockets: int
    """Open connections that are WebSockets."""
    stomp_connected: int
    """Open connections that have received CONNECTED."""
    subscriptions: int
    """Subscriptions of all connections."""


@dataclass(frozen=True)
class WsBuffer:
    """The pool of output buffers."""

    allocated: int
    """Buffers allocated."""
    hits: int
    """Times a buffer was reused."""
    misses: int
    """Times a buffer had to be allocated."""


@dataclass(frozen=True)
class Stale:
    """Waiting frames and messages, now."""

    input: int = field(metadata={"key": "in"})
    """Frames accepted and not yet routed: those between threads, and SENDs that are paused."""
    output: int = field(metadata={"key": "out"})
    """MESSAGEs routed and not yet written."""
    stale: int = 0
    """Messages that wait for a subscriber because of `TTL`."""


@dataclass(frozen=True)
class Network:
    """Traffic and how it was handled: sums over all threads."""

    bytes_in: int
    """Bytes read from connections."""
    bytes_out: int
    """Bytes written to connections."""
    frames_in: int
    """STOMP frames received."""
    messages_in: int
    """SENDs accepted."""
    deliveries: int
    """MESSAGEs given to subscriptions."""
    reads: int
    """System calls that read data."""
    writes: int
    """System calls that wrote data."""
    dropped_websocket_frames: int
    """Always 0: an invalid frame closes its connection. Kept for clients of C stompica."""
    fixed_underruns: int
    """Always 0; kept for clients of C stompica."""
    cached_destinations: int
    """Cached destination names without a subscription of their own, now."""
    connections: int
    """Open connections, those that are closing included, now."""
    accepted: int
    """Connections accepted."""
    refused: int
    """Connections refused."""
    closed: int
    """Connections that have ended."""
    errors: int
    """ERROR frames sent, and WebSockets closed for a violation."""
    dropped: int
    """MESSAGEs dropped for slow consumers (`slow_consumer`)."""


@dataclass(frozen=True)
class Benchmark:
    """Internal timings. They are recorded only for a minute after each query for them."""

    enabled_ms_left: int
    """Milliseconds until timing ends if there is no further query."""
    stages: Mapping[str, Stage]
    """`read`, `parse`, `route`, `encode`, `write`; and `turn`, one pass of a thread's loop, which includes them."""


@dataclass(frozen=True)
class Shard:
    """Figures of one writer thread. `connections`, `frames_in` and `deliveries` add up to those of Network."""

    shard: int
    """Number of the shard, from 0."""
    connections: int
    """Connections on it, now."""
    subscriptions: int
    """Subscriptions of these connections, now; they add up to those of Session."""
    queues: int
    """Queues on it, now."""
    turns: int
    """Passes of its loop."""
    mailbox_frames: int
    """Frames from other threads waiting in its mailbox, now."""
    frames_in: int
    """STOMP frames received."""
    deliveries: int
    """MESSAGEs given to subscriptions."""
    parked: int
    """Times a SEND was paused."""
    timers: int
    """Timers set, now."""
    cpu_us: int
    """Processor time of the thread, µs."""
    unanswered: int
    """RECEIPTs, transactions, new subscriptions and queries that wait for other threads, now."""
    max_turn_bytes: int
    """Most bytes encoded in one turn."""
    max_turn_deliveries: int
    """Most MESSAGEs given to subscriptions in one turn."""
    max_turn_visits: int
    """Most queues, names and similar items visited in one turn."""
    max_turn_us: int
    """Most processor time of one turn, µs; may be up to a millisecond too high."""


@dataclass(frozen=True)
class Memory:
    """Bytes held now, and the limit.

    The last four show what the memory is used for. They do not add up to `held_bytes` exactly: bytes shared by several
    connections are in `outbox_bytes` once for each.
    """

    held_bytes: int
    """Bytes that count against the limit."""
    limit_bytes: int
    """The setting `memory_limit`."""
    short: bool
    """Publishers are paused for lack of memory."""
    outbox_bytes: int
    """Bytes that wait to be written."""
    input_bytes: int
    """Bytes of incomplete frames and of open transactions."""
    chunk_bytes: int
    """Bytes of the output buffers in use."""
    queue_bytes: int
    """Bytes of the messages in queues, those in flight included."""


@dataclass(frozen=True)
class Queue:
    """One queue."""

    name: str
    """Its destination, or the name of a durable subscription. Not unique: different owners may use the same name."""
    kind: str
    """`work`, `worker` (`#…`), `temporary` or `durable`."""
    size: int
    """Messages waiting and in flight, now."""
    waiting_bytes: int
    """Bytes of the waiting messages, now."""
    in_flight: int
    """Messages delivered and not yet acknowledged, now."""
    consumers: int
    """Subscriptions that consume from it, now."""
    enqueued: int
    """Messages enqueued."""
    dequeued: int
    """Messages consumed."""


@dataclass(frozen=True)
class Ack:
    """One subscription that acknowledges, now."""

    connection: int
    """Number of its connection."""
    subscription: str
    """Its id, as the client chose it."""
    destination: str
    """The destination it subscribed to."""
    mode: str
    """`client` or `client-individual`."""
    in_flight: int
    """Deliveries not yet acknowledged."""
    oldest_ms: int
    """Age of the oldest unacknowledged delivery, milliseconds; 0 if there is none."""


@dataclass(frozen=True)
class Store:
    """Where persistent messages are kept, and how that goes. With `store=memory` all numbers are 0."""

    kind: str
    """`memory` or `file`."""
    state: str = "ready"
    """`recovering`, `ready`, `behind` (publishers of persistent messages pause), `full` or `read-only`, now."""
    reason: str = ""
    """Why it is read-only."""
    disk_bytes: int = 0
    """Bytes of its files without the reserve, now."""
    reserve_bytes: int = 0
    """Bytes of the reserve (`store_reserve`), now."""
    needed_bytes: int = 0
    """Bytes of its files that are needed, now."""
    unwritten_bytes: int = 0
    """Bytes of messages that were handed over and are not written, now."""
    written_bytes: int = 0
    """Bytes written."""
    segments: int = 0
    """Its files, now."""
    messages: int = 0
    """Messages, last values and durable subscriptions in it, now."""
    paged_messages: int = 0
    """Messages of queues of which only the store has the content, now."""
    damages: int = 0
    """Damaged parts that were found at the start."""
    lost_messages: int = 0
    """Messages that were lost since the start because they could not be read."""
    groups: int = 0
    """Groups of records that were written at once."""
    syncs: int = 0
    """Times that what was written was synced to disk."""
    sync: Stage = NEVER
    """How long these syncs took."""


@dataclass(frozen=True)
class Recorded:
    """A destination whose history is recorded (setting `record`); the answer has a thousand of them at most."""

    name: str
    """The destination."""
    epoch: int
    """The epoch of its last message."""
    first: int
    """The `seq` of the first message that is there; above `last` if none is."""
    last: int
    """The `seq` of the last message that was written."""
    durable: int
    """The `seq` of the last message that is safe."""
    bytes: int
    """The bytes of its messages on disk."""


@dataclass(frozen=True)
class Slow:
    """A connection that reads more slowly than it receives messages, now."""

    connection: int
    """Number of the connection."""
    peer: str
    """Its address and port."""
    outbox_bytes: int
    """Bytes queued for it and not yet written."""
    full_ms: int
    """How long its outbox has been full, milliseconds; 0 if it is not."""
    dropped: int
    """MESSAGEs dropped for it since the last one it was sent."""


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
    | tuple[Recorded, ...]
)
"""The types of answers."""

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
    "recorded": tuple[Recorded, ...],
}
"""Every query and the type of its answer."""


def check_query(query: str) -> None:
    """DiagError for a query that does not exist."""
    if query not in QUERIES:
        raise DiagError(f"unknown DIAG query {query!r}: there are {', '.join(QUERIES)}")


def decode(query: str, answer: Any) -> Any:
    """Converts a JSON answer to its record; unknown names are ignored.

    DiagError if something is missing or has the wrong type.
    """
    check_query(query)
    return _value(QUERIES[query], answer, query)


_Fields: TypeAlias = tuple[tuple[str, str, Any, bool], ...]
_known: dict[type[Any], _Fields] = {}


def _fields(kind: type[Any]) -> _Fields:
    """Attribute, JSON key, type, and whether it is required, of each field."""
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
    """Converts a record to JSON values: dictionaries, lists, numbers, strings; with DIAG's own names."""
    if isinstance(record, Bucket):
        return [record.low_ns, record.high_ns, record.count]
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {key: plain(getattr(record, name)) for name, key, _, _ in _fields(type(record))}
    if isinstance(record, Mapping):
        return {name: plain(item) for name, item in record.items()}
    if isinstance(record, tuple):
        return [plain(item) for item in record]
    return record
