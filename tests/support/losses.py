"""Clients that are lost: the ways in which a connection ends, and how to learn that the broker has noticed."""

from __future__ import annotations

from collections.abc import Callable

from tests.support import frames
from tests.support.queues import fresh
from tests.support.wire import Wire


class LossDetector:
    """Tells when the broker has noticed that a client is lost.

    `client` holds one message of each of many queues, and `watcher` consumes from all of them too: when `client` is
    lost, `watcher` receives the messages. Each queue is on one of the broker's shards, and each shard learns of the
    loss separately. There are enough queues that each of four shards has at least one, except with a probability of
    one in a million.
    Both clients must have nothing else to read while this is set up.
    """

    QUEUES = 48

    def __init__(self, client: Wire, watcher: Wire) -> None:
        self._id = fresh("loss")
        queues = f"/queue/{self._id}"
        client.subscribe(f"{queues}/*", self._id, ack="client")
        watcher.send(*(frames.send(f"{queues}/{number}", "held") for number in range(self.QUEUES)))
        for _ in range(self.QUEUES):
            client.expect_message("held", subscription=self._id)
        watcher.subscribe(f"{queues}/*", self._id)
        self._watcher = watcher

    def wait(self) -> None:
        """Returns when the broker has requeued the deliveries of the client."""
        for _ in range(self.QUEUES):
            self._watcher.expect_message("held", subscription=self._id, redelivered="true")


def _break_protocol(wire: Wire) -> None:
    wire.send(b"NOISE\n\n\0")


def _disconnect(wire: Wire) -> None:
    wire.send(frames.disconnect())


LOSSES: dict[str, Callable[[Wire], None]] = {
    "reset": Wire.reset,
    "close": Wire.close,
    "half-close": Wire.half_close,
    "disconnect": _disconnect,
    "error": _break_protocol,
}
"""The ways in which a client can end its connection."""
