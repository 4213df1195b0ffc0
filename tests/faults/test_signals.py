"""SIGTERM and SIGINT (PRODUCT.md, section 1): finish, flush, close, exit 0; a second one stops at once."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time

import pytest

from tests.faults.hostile import ask
from tests.faults.probes import SMALL_BUFFER, flood
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import WebSocket


def refuses(broker: BrokerProcess) -> bool:
    """Whether nobody listens on the broker's port any more."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", broker.port)) != 0


class Publisher(threading.Thread):
    """Sends numbered bodies, each with a receipt, until the broker goes; reads the RECEIPTs beside that."""

    def __init__(self, wire: Wire, name: int) -> None:
        super().__init__(daemon=True)
        self.wire = wire
        self.number = name
        self.receipts: list[int] = []
        self.others: list[Frame] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.warm = threading.Event()

    def run(self) -> None:
        """Sends until it fails, 20 frames at a time, at most 200 ahead of the receipts."""
        self.reader.start()
        sent = 0
        with contextlib.suppress(OSError):
            while self.reader.is_alive():
                if sent - len(self.receipts) > 200:
                    self.reader.join(0.001)
                    continue
                numbers = range(sent, sent + 20)
                self.wire.send(*(frames.send("/topic/load", f"{self.number}:{at}", receipt=f"{at}") for at in numbers))
                sent += 20
        self.reader.join(60)
        self.wire.discard()

    def _read(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            while True:
                frame = self.wire._parser.next_frame()
                if frame is None:
                    if not self.wire.receive_some():
                        return
                elif frame.command == "RECEIPT":
                    self.receipts.append(int(frame["receipt-id"]))
                    if len(self.receipts) == 500:
                        self.warm.set()
                else:
                    self.others.append(frame)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_under_load_receipts_due_are_sent_and_what_they_promise_was_delivered(
    start_broker: StartBroker, number: signal.Signals
) -> None:
    broker = start_broker(drain="60s")
    listener = Wire(broker.port)
    listener.connect()
    listener.subscribe("/topic/load")
    heard: list[Frame] = []

    def hear() -> None:
        heard.extend(listener.frames_until_closed())
        listener.close()

    hearing = threading.Thread(target=hear, daemon=True)
    hearing.start()
    publishers = []
    for name in range(4):
        wire: Wire = WebSocket.connected(broker.port) if name % 2 else Wire(broker.port)
        if not isinstance(wire, WebSocket):
            wire.connect()
        publishers.append(Publisher(wire, name))
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        assert publisher.warm.wait(60)
    broker.signal(number)
    assert broker.wait() == 0
    for publisher in publishers:
        publisher.join(60)
    hearing.join(60)
    delivered: dict[int, list[int]] = {publisher.number: [] for publisher in publishers}
    for frame in heard:
        assert frame.command == "MESSAGE", frame
        sender, _, at = frame.text.partition(":")
        delivered[int(sender)].append(int(at))
    for publisher in publishers:
        got = delivered[publisher.number]
        assert publisher.others == []
        assert got == list(range(len(got))), "in order, nothing lost"
        assert publisher.receipts == got, "each frame that took effect has its RECEIPT, and no other has"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_idle_broker_closes_everything_and_exits_0(start_broker: StartBroker, number: signal.Signals) -> None:
    broker = start_broker()
    with (
        Wire(broker.port) as session,
        Wire(broker.port) as silent,
        WebSocket.connected(broker.port) as websocket,
        WebSocket.open(broker.port) as bare,
    ):
        session.connect()
        session.subscribe("/topic/a")
        broker.signal(number)
        for wire in (session, silent):
            wire.expect_closed()
            wire.close()
        websocket.expect_close(1001)
        bare.expect_close(1001)
        assert broker.wait() == 0
    assert refuses(broker)


def test_broker_without_connections_exits_0(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.terminate()
    assert broker.wait() == 0


def stuck(broker: BrokerProcess) -> tuple[Wire, Wire]:
    """A subscriber that does not read and for which the broker holds megabytes; and its publisher."""
    slow, publisher = Wire(broker.port, receive_buffer=SMALL_BUFFER), Wire(broker.port)
    slow.connect()
    publisher.connect()
    slow.subscribe("/topic/stuck")
    flood(publisher, "/topic/stuck", 2000, 8192)
    return slow, publisher


def test_drain_waits_for_a_reader_and_loses_nothing(start_broker: StartBroker) -> None:
    """16 MB wait when the signal comes; the subscriber begins to read only then."""
    broker = start_broker(drain="30s")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        publisher.expect_closed()
        publisher.close()
        assert broker.alive
        seen = slow.frames_until_closed()
        slow.close()
        assert [int(frame.body[:8]) for frame in seen] == list(range(2000))
        assert broker.wait() == 0


def test_drain_that_runs_out_says_what_was_cut_and_exits_0(start_broker: StartBroker) -> None:
    """The threads that have nothing to cut off say nothing."""
    broker = start_broker(drain="500ms")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        assert broker.wait() == 0
        said = re.findall(r"drain ran out: (\d+) connections cut off, (\d+) bytes not sent", broker.log_text())
        assert [connections for connections, _ in said] == ["1"], broker.log_text()
        assert int(said[0][1]) > 1 << 20


def test_second_signal_stops_at_once(start_broker: StartBroker) -> None:
    broker = start_broker(drain="60s")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        eventually(lambda: refuses(broker), "the first signal is taken")
        assert broker.alive, "it drains"
        began = time.monotonic()
        broker.terminate()
        broker.wait()
        assert time.monotonic() - began < 30, "the drain time was 60 s"


def test_new_connections_are_refused_while_draining(start_broker: StartBroker) -> None:
    broker = start_broker(drain="60s")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        eventually(lambda: refuses(broker), "nobody accepts any more")
        for wire in (publisher, slow):
            wire.frames_until_closed()
            wire.close()
        assert broker.wait() == 0


def test_senders_that_wait_for_room_do_not_take_the_others_close_from_them(start_broker: StartBroker) -> None:
    """A queue that nobody reads has filled memory, and its publisher waits: there will never be room."""
    broker = start_broker(drain="8s", memory_limit="4MiB")
    with (
        Wire(broker.port) as publisher,
        Wire(broker.port) as session,
        WebSocket.connected(broker.port) as websocket,
    ):
        publisher.connect()
        session.connect()
        session.subscribe("/topic/a")
        publisher.send(*(frames.send_counted("/queue/forgotten", b"." * 50_000) for _ in range(120)))
        eventually(lambda: "publishers pause" in broker.log_text(), "memory is short")
        broker.terminate()
        websocket.expect_close(1001)
        session.expect_closed()
        session.close()
        publisher.frames_until_closed()
        publisher.close()
        assert broker.wait() == 0
        assert "drain ran out" not in broker.log_text()


def test_a_consumer_that_reads_slowly_does_not_take_the_others_close_from_them(start_broker: StartBroker) -> None:
    """It is owed more than fits into `drain`, and not cut off for a long time."""
    broker = start_broker(drain="4s", outbox_limit="64KiB", slow_consumer="block:1h")
    ended = threading.Event()
    with (
        Wire(broker.port) as slow,
        Wire(broker.port) as publisher,
        WebSocket.connected(broker.port) as websocket,
    ):
        slow.connect(heart_beat="0,0")
        publisher.connect()
        slow.send(*(frames.subscribe("/topic/a", str(number)) for number in range(100)))
        slow.send(frames.subscribe("/topic/b", "b", receipt="b"))
        slow.expect_receipt("b")

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not ended.wait(0.05) and slow.sock.recv(1 << 17):
                    pass

        reader = threading.Thread(target=trickle, daemon=True)
        reader.start()
        publisher.send(*(frames.send_counted("/topic/a", b"." * 400_000, receipt=str(at)) for at in range(2)))
        eventually(lambda: ask(websocket, "memory")["outbox_bytes"] > 64 << 10, "its outbox is full")
        broker.terminate()
        websocket.expect_close(1001)
        publisher.frames_until_closed()
        publisher.close()
        assert broker.wait() == 0
        ended.set()
        reader.join(30)
