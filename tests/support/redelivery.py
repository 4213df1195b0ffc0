"""Failed deliveries in dialogues: NACKs, redelivery delays and dead letters."""

from __future__ import annotations

from tests.support import frames
from tests.support.acks import ack_and_wait, nack, nack_and_wait
from tests.support.parser import Frame
from tests.support.queues import dead_letters, fresh, take, unsubscribe_and_wait
from tests.support.wire import Wire


def deliver_one(wire: Wire, destination: str, id: str = "s", **headers: frames.HeaderValue) -> Frame:
    """Subscribes and sends one message; returns it, in flight."""
    wire.subscribe(destination, id, **{"ack": "client-individual", **headers})
    wire.send(frames.send(destination, "x"))
    return wire.expect_message("x", subscription=id, redelivered=None, delivery_count=None)


def nack_repeatedly(wire: Wire, message: Frame, times: int) -> None:
    """Sends NACKs for the message and its redeliveries, `times` in total; the last one must end the redeliveries."""
    first = int(message.header("delivery-count") or 1)
    for count in range(first + 1, first + times):
        wire.send(nack(wire, message))
        message = wire.expect_message(message.body, redelivered="true", delivery_count=str(count))
    assert nack_and_wait(wire, message) == []


def expect_dead_letters(wire: Wire, destination: str, *texts: str) -> list[Frame]:
    """Consumes the dead letters of a destination, which must be these; they may still be on their way."""
    wire.send(frames.subscribe(dead_letters(destination), "dead letters"))
    found = take(wire, *texts, subscription="dead letters")
    wire.barrier()
    assert unsubscribe_and_wait(wire, "dead letters") == []
    return found


def wait_out_redelivery_delay(wire: Wire) -> None:
    """Returns when redelivery delays that began before are over.

    A message of its own goes through two delays, the second twice as long. `wire` must have nothing else to read.
    """
    queue = f"/queue/{fresh('delay')}"
    message = deliver_one(wire, queue, "delay", ack="client")
    for _ in range(2):
        wire.send(nack(wire, message))
        message = wire.expect_message("x", subscription="delay")
    assert ack_and_wait(wire, message) == []
    assert unsubscribe_and_wait(wire, "delay") == []
