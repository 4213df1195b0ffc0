"""Consumers over WebSocket: the close code of each ERROR, and what the end of a WebSocket requeues.

See docs/behaviour.md, sections 3 to 7.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import frames
from tests.support.acks import ack, nack
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.frames import VERSIONS
from tests.support.losses import LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, fresh, left_in, take
from tests.support.ws import WebSocket

MODES = ["client", "client-individual"]


@pytest.fixture
def tight(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with small limits."""
    return shared_broker(max_queue_length=1, max_transactions=1, max_transaction_size=300, max_retained=1)


# -- errors --------------------------------------------------------------------------------------------------------

SEND = frames.send
BEGIN = frames.begin("t")
ERRORS: dict[str, tuple[list[bytes], str, int]] = {
    "a full queue": ([SEND("QUEUE", "1"), SEND("QUEUE", "2")], "E-QUEUE-FULL", 1013),
    "a full queue at COMMIT": (
        [BEGIN, *(SEND("QUEUE", "x", transaction="t") for _ in range(2)), frames.commit("t")],
        "E-QUEUE-FULL",
        1013,
    ),
    "too many retained messages": (
        [SEND(f"/topic/QUEUE/{number}", "x", retain="set") for number in range(2)],
        "E-RETAINED-COUNT",
        1013,
    ),
    "too many transactions": ([BEGIN, frames.begin("u")], "E-TX-COUNT", 1008),
    "a transaction too large": ([BEGIN, SEND("QUEUE", "x" * 301, transaction="t")], "E-TX-COUNT", 1008),
    "a transaction open twice": ([BEGIN, BEGIN], "E-TX-OPEN", 1002),
    "an unknown transaction": ([frames.commit("t")], "E-TX-UNKNOWN", 1002),
    "an unknown delivery": ([frames.ack(id="x")], "E-ACK-UNKNOWN", 1002),
    "a NACK of an unknown delivery": ([frames.nack(id="x")], "E-ACK-UNKNOWN", 1002),
    "an invalid time to live": ([SEND("QUEUE", "x", ttl="soon")], "E-VALUE", 1002),
    "an invalid prefetch": ([frames.subscribe("QUEUE", prefetch_count="x")], "E-VALUE", 1002),
    "a wildcard": ([SEND("QUEUE/*", "x")], "E-DEST-WILDCARD", 1002),
    "a read-only queue": ([SEND("/queue/monitor", "x")], "E-READ-ONLY", 1008),
    "another client's temporary name": ([frames.subscribe("/temp-queue/NOBODY/x")], "E-TEMP-OWNER", 1008),
    "an unknown temporary name": ([SEND("/temp-queue/x", "x")], "E-TEMP-UNKNOWN", 1002),
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_is_followed_by_its_close_code(
    client: Clients, ws: OpenWebSocket, tight: BrokerProcess, queue: str, what: str
) -> None:
    sent, code, close = ERRORS[what]
    wire, other = ws(to=tight), client(to=tight)
    names = {b"NOBODY": secret(client, tight).encode(), b"QUEUE": queue.encode()}
    for frame in sent:
        for name, value in names.items():
            frame = frame.replace(name, value)
        wire.send(frame)
    wire.expect_error_and_close(code, close)
    other.send(SEND("/topic/end", "x", receipt="others go on"))
    other.expect_receipt("others go on")
    other.send(SEND(f"/topic/{queue}/0", retain="remove", receipt="r"))
    other.expect_receipt("r")


def secret(client: Clients, broker: BrokerProcess) -> str:
    """The secret part in the full names of another client's temporary destinations."""
    owner, queue = client(to=broker), f"/queue/{fresh('secret')}"
    owner.subscribe(queue)
    owner.send(SEND(queue, reply_to="/temp-queue/x"))
    return owner.expect_message()["reply-to"].removeprefix("/temp-queue/").removesuffix("/x")


# -- lost connections ----------------------------------------------------------------------------------------------

LOSSES: dict[str, Callable[[WebSocket], None]] = {
    "reset": WebSocket.reset,
    "end of the stream": WebSocket.close,
    "half-close": WebSocket.half_close,
    "Close": WebSocket.send_close,
    "Close without code": lambda wire: wire.send_close(None),
    "DISCONNECT": lambda wire: wire.send(frames.disconnect()),
    "an error of STOMP": lambda wire: wire.send(b"NOISE\n\n\0"),
    "an error of WebSocket": lambda wire: wire.send_frame(0xB, b""),
    "text that is not UTF-8": lambda wire: wire.send_frame(1, b"\xff"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mode", MODES)
def test_messages_of_a_lost_websocket_return_to_their_old_places(
    client: Clients, ws: OpenWebSocket, queue: str, mode: str, loss: str
) -> None:
    wire, other = ws(), client()
    detector = LossDetector(wire, other)
    fill(other, queue, *"12345")
    wire.send(frames.subscribe(queue, "s", ack=mode, prefetch_count=3))
    messages = take(wire, *"123")
    done = 0 if mode == "client" else 1
    wire.send(ack(wire, messages[done], receipt="acked"))
    while wire.recv_frame().command == "MESSAGE":
        pass
    LOSSES[loss](wire)
    detector.wait()
    left = ["2", "3", "4", "5"] if mode == "client" else ["1", "3", "4", "5"]
    assert bodies(left_in(client(), queue)) == left


@pytest.mark.parametrize("loss", LOSSES)
def test_a_transaction_of_a_lost_websocket_is_aborted(
    client: Clients, ws: OpenWebSocket, queue: str, loss: str
) -> None:
    wire, other = ws(), client()
    detector = LossDetector(wire, other)
    fill(other, queue, "1")
    wire.send(frames.subscribe(queue, "s", ack="client"))
    (message,) = take(wire, "1")
    wire.send(frames.begin("t") + ack(wire, message, transaction="t"))
    wire.send(frames.send(f"{queue}/out", "never", transaction="t", receipt="r"))
    wire.expect_receipt("r")
    LOSSES[loss](wire)
    detector.wait()
    assert bodies(left_in(client(), queue)) == ["1"]
    assert left_in(client(), f"{queue}/out") == []


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_may_be_split_over_websocket_messages(ws: OpenWebSocket, queue: str, version: str) -> None:
    """The frames come byte by byte, in messages of one byte and in fragments."""
    wire = ws(version)
    wire.subscribe(queue, "s", ack="client")
    for number in range(3):
        wire.send(frames.send(queue, str(number)))
        acked = ack(wire, wire.expect_message(str(number)), receipt=str(number))
        pieces = [acked[at : at + 1] for at in range(len(acked))]
        if number % 2:
            wire.send_fragments(*pieces)
        else:
            wire.send_pieces(*pieces)
        wire.expect_receipt(str(number))
    wire.send(frames.unsubscribe("s", receipt="u"))
    wire.expect_receipt("u")
    assert left_in(wire, queue) == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_nacked_message_passes_between_websocket_and_tcp(
    client: Clients, ws: OpenWebSocket, shared_broker: StartBroker, queue: str, version: str
) -> None:
    broker = shared_broker(redelivery_delay="2ms")
    first, second, publisher = ws(version, to=broker), client(version, to=broker), client(to=broker)
    first.subscribe(queue, "s", ack="client")
    publisher.send(frames.send(queue, "x"))
    message = first.expect_message("x")
    second.subscribe(queue, "s", ack="client")
    for count, (one, other) in enumerate([(first, second), (second, first), (first, second)], 2):
        one.send(nack(one, message))
        message = other.expect_message("x", redelivered="true", delivery_count=str(count))
    second.send(ack(second, message, receipt="done"))
    second.expect_receipt("done")
