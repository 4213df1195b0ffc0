"""Transactions in dialogues."""

from __future__ import annotations

from tests.support import frames
from tests.support.parser import Frame
from tests.support.queues import take
from tests.support.wire import Wire

INDIVIDUAL = "client-individual"


def consume(wire: Wire, queue: str, *expected: str, mode: str = "", **headers: frames.HeaderValue) -> list[Frame]:
    """Consumes these messages without acknowledging them; by default in the strictest mode of the version."""
    mode = mode or ("client" if wire.version == "1.0" else INDIVIDUAL)
    wire.send(frames.subscribe(queue, "held", ack=mode, **headers))
    return take(wire, *expected)


def commit(wire: Wire, transaction: str = "t") -> None:
    """Sends COMMIT; its RECEIPT must be the next frame."""
    wire.send(frames.commit(transaction, receipt=f"committed {transaction}"))
    wire.expect_receipt(f"committed {transaction}")
