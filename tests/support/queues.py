"""Work queues and acknowledgements in dialogues: each version's forms, what a queue still holds, clients that die."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

CLIENT_MODES = [
    ("1.0", "client"),
    *((version, mode) for version in ("1.1", "1.2") for mode in ("client", "client-individual")),
]
"""Each version with each of its modes that want an ACK."""

_counter = itertools.count()


def fresh(name: str) -> str:
    """A name that was not used before."""
    return f"{name}-{next(_counter)}"


def names(wire: Wire, message: Frame) -> list[frames.Header]:
    """The headers by which `wire`'s version acknowledges `message`."""
    if wire.version == "1.2":
        return [("id", message["ack"])]
    if wire.version == "1.1":
        return [("subscription", message["subscription"]), ("message-id", message["message-id"])]
    return [("message-id", message["message-id"])]


def ack(wire: Wire, message: Frame, **headers: frames.HeaderValue) -> bytes:
    """ACK of `message` in the version of `wire`."""
    return frames.ack(*names(wire, message), **headers)


def nack(wire: Wire, message: Frame, **headers: frames.HeaderValue) -> bytes:
    """NACK of `message` in the version of `wire`."""
    return frames.nack(*names(wire, message), **headers)


def until_receipt(wire: Wire, receipt: str) -> list[Frame]:
    """Waits for this RECEIPT; the MESSAGEs that came before it."""
    found = []
    while (frame := wire.recv_frame()).command == "MESSAGE":
        found.append(frame)
    assert (frame.command, frame.header("receipt-id")) == ("RECEIPT", receipt), frame
    return found


def ack_and_wait(wire: Wire, *messages: Frame) -> list[Frame]:
    """Sends an ACK for each and waits for the last one's RECEIPT; the MESSAGEs that came before it."""
    receipt = fresh("acked")
    *others, last = messages
    wire.send(*(ack(wire, message) for message in others), ack(wire, last, receipt=receipt))
    return until_receipt(wire, receipt)


def nack_and_wait(wire: Wire, *messages: Frame) -> list[Frame]:
    """Sends a NACK for each and waits for the last one's RECEIPT; the MESSAGEs that came before it."""
    receipt = fresh("nacked")
    *others, last = messages
    wire.send(*(nack(wire, message) for message in others), nack(wire, last, receipt=receipt))
    return until_receipt(wire, receipt)


def unsubscribe_and_wait(wire: Wire, id: str) -> list[Frame]:
    """UNSUBSCRIBE and wait for its RECEIPT; the MESSAGEs that came before it."""
    receipt = fresh("unsubscribed")
    wire.send(frames.unsubscribe(id, receipt=receipt))
    return until_receipt(wire, receipt)


def fill(wire: Wire, destination: str, *bodies: str) -> None:
    """Sends the bodies in order and waits until the broker has them all."""
    *others, last = bodies
    wire.send(*(frames.send(destination, body) for body in others))
    wire.send_and_wait(destination, last)


def take(wire: Wire, *bodies: str, **headers: str | None) -> list[Frame]:
    """The next frames, which must be MESSAGEs with these bodies in this order."""
    return [wire.expect_message(body, **headers) for body in bodies]


def left_in(wire: Wire, queue: str) -> list[Frame]:
    """Consumes all that waits in `queue`, in order. Whoever else consumed from it must be gone.

    A message sent last marks the end, for a queue is FIFO; one that waits for its redelivery delay is not found.
    """
    end = fresh("the end of the queue")
    wire.send(frames.subscribe(queue, end), frames.send(queue, end))
    found = []
    while (message := wire.expect_message(subscription=end)).text != end:
        found.append(message)
    assert unsubscribe_and_wait(wire, end) == []
    return found


def bodies(messages: Sequence[Frame]) -> list[str]:
    """Their bodies as text."""
    return [message.text for message in messages]


class Witness:
    """Tells when the broker has noticed that a client is gone.

    `doomed` holds one message of a queue of its own, `watcher` consumes from that queue too: when `doomed` is lost,
    the message comes to `watcher`. Both must have nothing else to read while this is set up.
    """

    def __init__(self, doomed: Wire, watcher: Wire) -> None:
        queue = f"/queue/{fresh('witness')}"
        doomed.subscribe(queue, "witness", ack="client")
        watcher.send_and_wait(queue, "witness")
        doomed.expect_message("witness", subscription="witness")
        watcher.subscribe(queue, "witness")
        self._watcher = watcher

    def wait(self) -> None:
        """Returns when the broker has taken back what the client held."""
        self._watcher.expect_message("witness", subscription="witness", redelivered="true")


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
"""The ways in which a connection ends by the client's doing."""


def shares(publisher: Wire, consumers: Sequence[Wire], topic: str) -> list[list[Frame]]:
    """What each consumer was given up to now; each must be subscribed to `topic`, which nobody else uses.

    The publisher's RECEIPTs are read, so that its messages have left their queues; the topic's message follows them.
    """
    end = fresh("the end of the shares")
    publisher.send(frames.send(topic, end))
    found: list[list[Frame]] = []
    for consumer in consumers:
        found.append([])
        while (message := consumer.expect_message()).text != end:
            found[-1].append(message)
    return found
