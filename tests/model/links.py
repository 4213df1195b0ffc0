"""Connections of the model test: over TCP, over WebSocket, and one to each shard to wait for quiescence."""

from __future__ import annotations

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire
from tests.support.ws import WebSocket


class TcpLink(Wire):
    """A TCP connection whose frames are read as they arrive."""

    def read(self) -> list[Frame] | None:
        """Returns the frames that one read completes; `None` at the end of the stream. Call it when it is readable."""
        if not self.receive_some():
            assert self._parser.unread == b"", f"an incomplete frame before the end: {self._parser.unread[:300]!r}"
            return None
        return self._whole_frames()

    def _whole_frames(self) -> list[Frame]:
        found = []
        while (frame := self._parser.next_frame()) is not None:
            found.append(frame)
        return found


class WebSocketLink(WebSocket):
    """The same over WebSocket."""

    def read(self) -> list[Frame] | None:
        """As `TcpLink.read`; reads on while complete messages wait in its own buffer."""
        found: list[Frame] = []
        while True:
            if not self.receive_some():
                return found or None
            while (frame := self._parser.next_frame()) is not None:
                found.append(frame)
            if not self.stream.buffer:
                return found

    @property
    def at_end(self) -> bool:
        """Whether the Close frame came together with the last frames."""
        return self.closed is not None


class Fence:
    """One connection to every shard, which shows by the protocol alone that the broker has no work left.

    Connections are distributed over the shards in turn. When a shard answers on another connection for the second time,
    it has noticed a reset and told the homes of the queues. The RECEIPT of SUBSCRIBE needs an answer from every shard,
    which is sent after all earlier mail between the two shards. One more round requeues what a home had sent to a
    consumer before the home knew that the consumer was lost.
    """

    def __init__(self, port: int, writers: int) -> None:
        self._wires = [Wire(port) for _ in range(writers)]
        for wire in self._wires:
            wire.connect()

    def wait(self) -> None:
        """Returns when all effects of earlier frames have happened, except those that wait for a delay or timeout."""
        for _ in range(4):
            for wire in self._wires:
                wire.subscribe("/topic/fence")
                wire.send(frames.unsubscribe("0", receipt="u"))
                wire.expect_receipt("u")

    def close(self) -> None:
        """Closes the connections."""
        for wire in self._wires:
            wire.discard()
