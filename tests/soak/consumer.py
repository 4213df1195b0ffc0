"""A consumer in a process of its own, to be killed: `python -m tests.soak.consumer PORT QUEUE PREFETCH`.

It keeps a few messages unacknowledged, so that a kill leaves some. It prints each event at once: `ready`, `got BODY`,
`acks BODY` (the ACK is about to be sent), `acked BODY` (its RECEIPT has come).
"""

from __future__ import annotations

import os
import sys

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

KEEPS = 10


def report(line: str) -> None:
    """Writes each line with one system call, so that it can be read after a SIGKILL."""
    os.write(1, f"{line}\n".encode())


def main(port: int, queue: str, prefetch: str) -> None:
    """Acknowledges all messages except the last few, until it is killed."""
    wire = Wire(port, timeout=3600)
    wire.connect()
    wire.subscribe(queue, "0", ack="client-individual", prefetch_count=prefetch)
    report("ready")
    held: list[Frame] = []
    while True:
        frame = wire.recv_frame()
        if frame.command == "MESSAGE":
            held.append(frame)
            report(f"got {frame.text}")
            if len(held) > KEEPS:
                oldest = held.pop(0)
                report(f"acks {oldest.text}")
                wire.send(frames.ack(id=oldest["ack"], receipt=oldest.text))
        else:
            assert frame.command == "RECEIPT", frame
            report(f"acked {frame['receipt-id']}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
