"""Acknowledgements in dialogues: the form of ACK and NACK in each version, and what they leave."""

from __future__ import annotations

from tests.support import frames
from tests.support.parser import Frame
from tests.support.queues import bodies, fill, fresh, left_in, numbered, take, unsubscribe_and_wait, until_receipt
from tests.support.wire import Wire

CLIENT_MODES = [(version, mode) for version in frames.VERSIONS for mode in ("client", "client-individual")]
"""Each version with each mode that requires ACKs; 1.0 has the second mode because its clients expect it."""

INDIVIDUAL_MODES = [(version, mode) for version, mode in CLIENT_MODES if mode == "client-individual"]
"""Each version with the mode in which an ACK covers one message."""

VERSION_COMMAND = [
    *((version, "ACK") for version in frames.VERSIONS),
    *((version, "NACK") for version in frames.ESCAPING),
]
"""ACK and NACK, each with the versions that have it."""


def ack_headers(wire: Wire, message: Frame) -> list[frames.Header]:
    """The headers by which `wire`'s version acknowledges `message`."""
    if wire.version == "1.2":
        return [("id", message["ack"])]
    if wire.version == "1.1":
        return [("subscription", message["subscription"]), ("message-id", message["message-id"])]
    return [("message-id", message["message-id"])]


def ack(wire: Wire, message: Frame, **headers: frames.HeaderValue) -> bytes:
    """ACK of `message` in the version of `wire`."""
    return settle("ACK", wire, message, **headers)


def nack(wire: Wire, message: Frame, **headers: frames.HeaderValue) -> bytes:
    """NACK of `message` in the version of `wire`."""
    return settle("NACK", wire, message, **headers)


def settle(command: str, wire: Wire, message: Frame, **headers: frames.HeaderValue) -> bytes:
    """Builds an ACK or NACK (`command`) of `message` in the version of `wire`."""
    return frames.frame(command, *ack_headers(wire, message), **headers)


def ack_and_wait(wire: Wire, *messages: Frame) -> list[Frame]:
    """Sends an ACK for each and waits for the last one's RECEIPT; returns the MESSAGEs that came before it."""
    return _settle_and_wait("ACK", wire, *messages)


def nack_and_wait(wire: Wire, *messages: Frame) -> list[Frame]:
    """Sends a NACK for each and waits for the last one's RECEIPT; returns the MESSAGEs that came before it."""
    return _settle_and_wait("NACK", wire, *messages)


def _settle_and_wait(command: str, wire: Wire, *messages: Frame) -> list[Frame]:
    receipt = fresh(command)
    *others, last = messages
    wire.send(*(settle(command, wire, message) for message in others), settle(command, wire, last, receipt=receipt))
    return until_receipt(wire, receipt)


def deliver(wire: Wire, destination: str, count: int, id: str = "s", **headers: frames.HeaderValue) -> list[Frame]:
    """Subscribes and sends; returns `count` MESSAGEs in flight, with the bodies 0, 1, …"""
    texts = numbered(count)
    wire.subscribe(destination, id, **{"ack": "client", **headers})
    wire.send(*(frames.send(destination, text) for text in texts))
    return take(wire, *texts, subscription=id)


def prefetched(
    wire: Wire, publisher: Wire, destination: str, count: int, *, of: int, id: str = "s", **headers: frames.HeaderValue
) -> list[Frame]:
    """Subscribes with a prefetch of `count`, and sends `of` messages; returns the first `count`, now in flight."""
    wire.subscribe(destination, id, **{"ack": "client", "prefetch_count": count, **headers})
    fill(publisher, destination, *numbered(of))
    return take(wire, *numbered(count), subscription=id)


def unacknowledged(wire: Wire, queue: str, id: str = "s") -> list[str]:
    """Ends the subscription; returns the bodies of what was not acknowledged and of what was not delivered."""
    assert unsubscribe_and_wait(wire, id) == []
    return bodies(left_in(wire, queue))
