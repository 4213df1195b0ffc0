"""What a broker tells of itself, asked by a DIAG frame."""

from __future__ import annotations

import json
from typing import Any

from tests.support import frames
from tests.support.wire import Wire


def answer(wire: Wire, query: str) -> Any:
    """The answer's JSON; `wire` must have nothing else to read."""
    wire.send(frames.frame("DIAG", body=query))
    frame = wire.expect("DIAG")
    assert frame["query"] == query, frame
    return json.loads(frame.text)


def shards_sum(wire: Wire, name: str) -> int:
    """The sum over all threads of what the query `shards` tells by this name."""
    return sum(shard[name] for shard in answer(wire, "shards"))
