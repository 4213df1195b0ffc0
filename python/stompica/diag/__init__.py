"""Diagnostics of a running broker: DIAG as typed records.

>>> import stompica
>>> with stompica.Broker() as broker:
...     broker.diag("session").clients
0

`connect` does the same for a remote broker, `stompica diag` on the command line. See docs/diag.md.
"""

from __future__ import annotations

from stompica.diag.api import Diag
from stompica.diag.records import (
    QUERIES,
    Ack,
    Benchmark,
    DiagError,
    Memory,
    Network,
    Queue,
    Record,
    Recorded,
    Session,
    Shard,
    Slow,
    Stale,
    Store,
    WsBuffer,
    plain,
)
from stompica.diag.remote import RemoteDiag, connect
from stompica.diag.stages import Bucket, Stage
from stompica.diag.watch import Watch

__all__ = [
    "QUERIES",
    "Ack",
    "Benchmark",
    "Bucket",
    "Diag",
    "DiagError",
    "Memory",
    "Network",
    "Queue",
    "Record",
    "Recorded",
    "RemoteDiag",
    "Session",
    "Shard",
    "Slow",
    "Stage",
    "Stale",
    "Store",
    "Watch",
    "WsBuffer",
    "connect",
    "plain",
]
