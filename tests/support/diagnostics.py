"""The broker's own diagnostics: DIAG frames and `/queue/monitor`."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

HEADER_QUERIES = [
    "session",
    "ws_buffer",
    "stale",
    "session-size",
    "session-encoded-size",
    "session-connected-size",
    "pubsub-size",
    "subs",
]
"""The queries of C stompica, which are answered in a header."""

JSON_QUERIES = ["network", "benchmark", "shards", "memory", "queues", "ack", "store", "slow", "recorded"]
"""The queries that are answered by a JSON body."""

NETWORK_FIELDS = {
    "bytes_in",
    "bytes_out",
    "frames_in",
    "messages_in",
    "deliveries",
    "reads",
    "writes",
    "dropped_websocket_frames",
    "fixed_underruns",
    "cached_destinations",
    "connections",
    "accepted",
    "refused",
    "closed",
    "errors",
    "dropped",
}
"""The fields of the query `network`."""

MONITOR = "/queue/monitor"
_BLOCK = re.compile(r"Queue: ([^\n]+)\nsize: (\d+)\ndequeued: (\d+)\nenqueued: (\d+)\n\n")


def diag(query: frames.Text, **headers: frames.HeaderValue) -> bytes:
    """A DIAG frame."""
    return frames.frame("DIAG", body=query, **headers)


def header_names(frame: Frame) -> list[str]:
    """The names of the frame's headers in their order."""
    return [name for name, _ in frame.headers]


def answer(wire: Wire, query: str) -> Any:
    """Asks by a DIAG frame; returns the answer's JSON (for `subs`: its text). `wire` must have nothing else to read."""
    wire.send(diag(query))
    frame = wire.expect("DIAG")
    if query in JSON_QUERIES:
        assert header_names(frame) == ["query", "content-type", "content-length"], frame
        assert frame["query"] == query and frame["content-type"] == "application/json"
        return json.loads(frame.text)
    assert header_names(frame) == [query] and frame.body == b"", frame
    return frame[query] if query == "subs" else json.loads(frame[query])


def ask(wire: Wire, query: str, destination: str = "DIAG") -> Frame:
    """Sends a query to a destination that `wire` has subscribed to; returns the answer."""
    wire.send(frames.send(destination, query))
    return wire.expect_message(destination=destination)


def shards_sum(wire: Wire, name: str) -> int:
    """The sum of this field of the query `shards` over all threads."""
    return sum(shard[name] for shard in answer(wire, "shards"))


def parse_monitor(text: str) -> dict[str, tuple[int, int, int]]:
    """Parses a text of the monitor: size, dequeued and enqueued of each queue. Any other content is an error."""
    assert _BLOCK.sub("", text) == "", f"not the monitor's format: {text!r}"
    blocks = _BLOCK.findall(text)
    found = {name: (int(size), int(dequeued), int(enqueued)) for name, size, dequeued, enqueued in blocks}
    assert len(found) == len(blocks), f"a queue twice: {text}"
    return found
