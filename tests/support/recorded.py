"""Brokers that record, and subscriptions that replay."""

from __future__ import annotations

from tests.support import frames
from tests.support.parser import Frame
from tests.support.queues import fresh
from tests.support.stored import PERSISTENT
from tests.support.wire import Wire

RECORD = "/topic/rec/>,/queue/rec/>"
"""The destinations that the tests record."""

TOPIC = "/topic/rec/a"
QUEUE = "/queue/rec/a"


def replay(wire: Wire, destination: str, id: str, replay_from: str, **headers: frames.HeaderValue) -> Frame:
    """Subscribes with `replay-from`; returns the RECEIPT."""
    receipt = fresh("replays")
    wire.send(frames.subscribe(destination, id, ("replay-from", replay_from), receipt=receipt, **headers))
    return wire.expect("RECEIPT", receipt_id=receipt)


def record(wire: Wire, destination: str, first: int, count: int, *pairs: frames.Header) -> None:
    """Sends persistent messages whose bodies are their numbers from `first` on, and waits for all RECEIPTs."""
    receipts = [fresh("recorded") for _ in range(count)]
    wire.send(
        *(
            frames.send_counted(destination, str(number), PERSISTENT, *pairs, receipt=receipt)
            for number, receipt in zip(range(first, first + count), receipts, strict=True)
        )
    )
    for receipt in receipts:
        wire.expect_receipt(receipt)


def numbers(wire: Wire, id: str, count: int) -> list[int]:
    """The `seq` of the next messages, whose bodies are the same numbers."""
    found = []
    for _ in range(count):
        message = wire.expect_message(subscription=id)
        assert message.text == message["seq"], message
        found.append(int(message["seq"]))
    return found
