"""Work queues and acknowledgements in dialogues: each version's forms, what a queue still holds, clients that die."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

CLIENT_MODES = [(version, mode) for version in frames.VERSIONS for mode in ("client", "client-individual")]
"""Each version with each mode that wants an ACK; 1.0 has the second as its clients expect."""

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

    `doomed` holds a message of each of some queues, from all of which `watcher` consumes too: when `doomed` is lost,
    the messages come to `watcher`. A queue lives on one of the broker's shards, and each shard hears of the loss by
    itself: so many queues make sure (but for one chance in a million with four shards) that all have heard.
    Both clients must have nothing else to read while this is set up.
    """

    QUEUES = 48

    def __init__(self, doomed: Wire, watcher: Wire) -> None:
        self._id = fresh("witness")
        queues = f"/queue/{self._id}"
        doomed.subscribe(f"{queues}/*", self._id, ack="client")
        watcher.send(*(frames.send(f"{queues}/{number}", "witness") for number in range(self.QUEUES)))
        for _ in range(self.QUEUES):
            doomed.expect_message("witness", subscription=self._id)
        watcher.subscribe(f"{queues}/*", self._id)
        self._watcher = watcher

    def wait(self) -> None:
        """Returns when the broker has taken back what the client held."""
        for _ in range(self.QUEUES):
            self._watcher.expect_message("witness", subscription=self._id, redelivered="true")


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


def shares(publisher: Wire, consumers: Sequence[Wire], topic: str, count: int = 0) -> list[list[Frame]]:
    """What each consumer was given up to now, `count` messages or more in all.

    Each must be subscribed to `topic`, which nobody else uses: a message of the publisher there ends each round.
    A queue's delivery is under way when its sender has the RECEIPT; the topic's message, by another way, may pass it.
    """
    found: list[list[Frame]] = [[] for _ in consumers]
    deadline = time.monotonic() + publisher.timeout
    while True:
        end = fresh("the end of the shares")
        publisher.send(frames.send(topic, end))
        for consumer, share in zip(consumers, found, strict=True):
            while (message := consumer.expect_message()).text != end:
                share.append(message)
        if sum(map(len, found)) >= count:
            return found
        assert time.monotonic() < deadline, f"{sum(map(len, found))} messages of {count} came"


def dead_letters(destination: str) -> str:
    """The dead-letter queue of a destination."""
    return "/queue/dlq/" + destination.removeprefix("/queue/").removeprefix("/")
