"""Queues in dialogues: filling them, consuming from them, and reading what they still hold."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from tests.support import frames
from tests.support.clients import Clients
from tests.support.parser import Frame
from tests.support.wire import Wire

_counter = itertools.count()


def numbered(count: int) -> list[str]:
    """The bodies "0", "1", … of `count` messages."""
    return [str(number) for number in range(count)]


NUMBERS = numbered(40)


def fresh(name: str) -> str:
    """A name that was not used before."""
    return f"{name}-{next(_counter)}"


def until_receipt(wire: Wire, receipt: str) -> list[Frame]:
    """Waits for this RECEIPT; returns the MESSAGEs that came before it."""
    found = []
    while (frame := wire.recv_frame()).command == "MESSAGE":
        found.append(frame)
    assert (frame.command, frame.header("receipt-id")) == ("RECEIPT", receipt), frame
    return found


def unsubscribe_and_wait(wire: Wire, id: str) -> list[Frame]:
    """Sends UNSUBSCRIBE and waits for its RECEIPT; returns the MESSAGEs that came before it."""
    receipt = fresh("unsubscribed")
    wire.send(frames.unsubscribe(id, receipt=receipt))
    return until_receipt(wire, receipt)


def fill(wire: Wire, destination: str, *bodies: str) -> None:
    """Sends the bodies in order and waits until the broker has them all."""
    *others, last = bodies
    wire.send(*(frames.send(destination, body) for body in others))
    wire.send_and_wait(destination, last)


def take(wire: Wire, *bodies: str, **headers: str | None) -> list[Frame]:
    """Reads the next frames, which must be MESSAGEs with these bodies in this order."""
    return [wire.expect_message(body, **headers) for body in bodies]


def left_in(wire: Wire, queue: str) -> list[Frame]:
    """Consumes all messages of `queue`, in order. The queue must have no other consumer.

    A message sent last marks the end, for a queue is FIFO; one that waits for its redelivery delay is not found.
    """
    end = fresh("the end of the queue")
    wire.send(frames.subscribe(queue, end), frames.send(queue, end))
    found = []
    while (message := wire.expect_message(subscription=end)).text != end:
        found.append(message)
    assert unsubscribe_and_wait(wire, end) == []
    return found


def take_all(wire: Wire, queue: str, count: int) -> list[Frame]:
    """Consumes the `count` messages of `queue`. Unlike `left_in`, it sends no message, so the queue may be full."""
    id = fresh("take all")
    wire.send(frames.subscribe(queue, id))
    found = [wire.expect_message(subscription=id) for _ in range(count)]
    wire.barrier()
    assert unsubscribe_and_wait(wire, id) == []
    return found


def bodies(messages: Sequence[Frame]) -> list[str]:
    """Their bodies as text."""
    return [message.text for message in messages]


def consumer(
    clients: Clients, queue: str, topic: str, version: str = "1.2", mode: str = "client-individual", **headers: str
) -> Wire:
    """A client that consumes from the queue and subscribes to the topic, as `shares` needs."""
    wire = clients(version)
    wire.subscribe(topic, "end")
    wire.subscribe(queue, "jobs", ack=mode, **headers)
    return wire


def shares(publisher: Wire, consumers: Sequence[Wire], topic: str, count: int = 0) -> list[list[Frame]]:
    """The messages each consumer got up to now, `count` or more in all.

    Each must be subscribed to `topic`, which no other client uses: a message of the publisher there ends each round.
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
