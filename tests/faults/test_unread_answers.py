"""A client that does not read the answers to its frames is not read (`outbox_limit`), and is cut off in the end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.probes import SMALL_BUFFER, memory_kib, rest_of
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import PING, TEXT, WebSocket, encode_frame

FLOOD = 192 << 20
"""Far more than the buffers of the kernel and `outbox_limit` hold."""
GROWTH_KIB_MAX = 32 << 10

LONG_RECEIPT = frames.send("/topic/nobody", "", receipt="r" * 4000)
LONG_PING = encode_frame(PING, b"p" * 125)
HEARTBEATS_AND_RECEIPTS = frames.begin("t", receipt="r" * 4000) + b"\n" * 10 + frames.abort("t", receipt="r" * 4000)


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(outbox_limit="1MiB", slow_consumer="block:700ms", heartbeat="0,0")


@pytest.fixture
def flooder(broker: BrokerProcess) -> Iterator[Callable[[bool], Wire]]:
    """Makes clients that read nothing."""
    made: list[Wire] = []

    def make(websocket: bool) -> Wire:
        if websocket:
            made.append(WebSocket.connected(broker.port, receive_buffer=SMALL_BUFFER))
        else:
            made.append(Wire(broker.port, receive_buffer=SMALL_BUFFER))
            made[-1].connect()
        return made[-1]

    yield make
    for wire in made:
        wire.discard()


def send_until_held(sock: socket.socket, piece: bytes) -> int:
    """Sends up to FLOOD bytes, until nothing is taken for a while. Returns how many bytes were taken."""
    data = piece * ((1 << 20) // len(piece))
    sent = 0
    sock.settimeout(0.4)
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < FLOOD:
            sent += sock.send(data[sent % len(data) :])
    return sent


@pytest.mark.parametrize(
    ("websocket", "piece"),
    [
        (False, LONG_RECEIPT),
        (False, HEARTBEATS_AND_RECEIPTS),
        (True, LONG_PING),
        (True, encode_frame(TEXT, LONG_RECEIPT)),
    ],
    ids=["receipts", "transactions", "pongs", "receipts-over-websocket"],
)
def test_unread_answers_stay_within_the_outbox_limit(
    broker: BrokerProcess, flooder: Callable[[bool], Wire], websocket: bool, piece: bytes
) -> None:
    before_kib = memory_kib(broker.pid)
    wire = flooder(websocket)
    assert send_until_held(wire.sock, piece) < FLOOD
    assert memory_kib(broker.pid) - before_kib < GROWTH_KIB_MAX


def test_a_client_that_reads_no_answers_is_cut_off(broker: BrokerProcess, flooder: Callable[[bool], Wire]) -> None:
    wire = flooder(False)
    send_until_held(wire.sock, LONG_RECEIPT)
    broker.wait_for_log("slow consumer cut off", timeout=10)
    wire.sock.settimeout(10)
    *_, last = rest_of(wire)[0]
    assert (last.command, last["code"]) == ("ERROR", "E-SLOW-CONSUMER")


def test_a_client_that_reads_its_answers_late_gets_all_of_them_in_order(start_broker: StartBroker) -> None:
    """The broker reads from the client again after it has taken half of its answers."""
    broker = start_broker(outbox_limit="64KiB", slow_consumer="block:60s")
    count = 20_000
    with Wire(broker.port, timeout=20, receive_buffer=SMALL_BUFFER) as wire:
        wire.connect()
        data = b"".join(frames.send("/topic/nobody", "", receipt=f"{at:0500}") for at in range(count))
        wire.sock.settimeout(0.3)
        sent = 0
        answered = 0
        while answered < count:
            with contextlib.suppress(TimeoutError):
                sent += wire.sock.send(data[sent : sent + (1 << 18)])
            if sent == len(data) or sent > (answered + 8000) * 550:
                for _ in range(min(4000, count - answered)):
                    wire.expect_receipt(f"{answered:0500}")
                    answered += 1
                wire.sock.settimeout(0.3)
        wire.barrier()
