"""A consumer in a process of its own, made to be killed: `python -m tests.soak.consumer PORT QUEUE PREFETCH`.

It keeps a few messages unacknowledged, so that a kill finds it with some. It says what it does on its standard output,
at once: `ready`, `got BODY`, `acks BODY` (the ACK is about to leave), `acked BODY` (its RECEIPT has come).
"""

from __future__ import annotations

import os
import sys

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

KEEPS = 10


def say(line: str) -> None:
    """One write a line: what was said before a SIGKILL can be read after it."""
    os.write(1, f"{line}\n".encode())


def main(port: int, queue: str, prefetch: str) -> None:
    """Acknowledges what comes, but for the last few, until it is killed."""
    wire = Wire(port, timeout=3600)
    wire.connect()
    wire.subscribe(queue, "0", ack="client-individual", prefetch_count=prefetch)
    say("ready")
    held: list[Frame] = []
    while True:
        frame = wire.recv_frame()
        if frame.command == "MESSAGE":
            held.append(frame)
            say(f"got {frame.text}")
            if len(held) > KEEPS:
                oldest = held.pop(0)
                say(f"acks {oldest.text}")
                wire.send(frames.ack(id=oldest["ack"], receipt=oldest.text))
        else:
            assert frame.command == "RECEIPT", frame
            say(f"acked {frame['receipt-id']}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
