"""SIGTERM and SIGINT (docs/behaviour.md, section 1): finish, flush, close, exit 0; a second signal stops at once."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.diagnostics import answer
from tests.support.parser import Frame
from tests.support.probes import SMALL_BUFFER, flood
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire
from tests.support.ws import WebSocket


def refuses(broker: BrokerProcess) -> bool:
    """Whether the broker's port accepts no connections any more."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", broker.port)) != 0


class Publisher(threading.Thread):
    """Sends numbered bodies, each with a receipt header, until the broker ends; reads the RECEIPTs at the same time."""

    def __init__(self, wire: Wire, name: int) -> None:
        super().__init__(daemon=True)
        self.wire = wire
        self.number = name
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.warm = threading.Event()
        self.receipts: list[int] = []
        self.others: list[Frame] = []

    def run(self) -> None:
        """Sends until it fails, 20 frames at a time, at most 200 ahead of the RECEIPTs."""
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
def test_under_load_all_due_receipts_are_sent_and_the_messages_delivered(
    start_broker: StartBroker, number: signal.Signals
) -> None:
    broker = start_broker(drain="60s")
    listener = Wire(broker.port)
    listener.connect()
    listener.subscribe("/topic/load")
    received: list[Frame] = []

    def listen() -> None:
        received.extend(listener.frames_until_closed())
        listener.close()

    hearing = threading.Thread(target=listen, daemon=True)
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
    for frame in received:
        assert frame.command == "MESSAGE", frame
        sender, _, at = frame.text.partition(":")
        delivered[int(sender)].append(int(at))
    for publisher in publishers:
        got = delivered[publisher.number]
        assert publisher.others == []
        assert got == list(range(len(got))), "a message is missing or out of order"
        assert publisher.receipts == got, "the RECEIPTs do not match the deliveries"


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
    """A subscriber that does not read and for which the broker holds megabytes, and its publisher."""
    slow, publisher = Wire(broker.port, receive_buffer=SMALL_BUFFER), Wire(broker.port)
    slow.connect()
    publisher.connect()
    slow.subscribe("/topic/stuck")
    flood(publisher, "/topic/stuck", 2000, 8192)
    return slow, publisher


def test_drain_waits_for_a_reader_and_loses_nothing(start_broker: StartBroker) -> None:
    """16 MB are waiting when the signal comes; the subscriber starts to read only then."""
    broker = start_broker(drain="30s")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        publisher.expect_closed()
        publisher.close()
        assert broker.alive
        received = slow.frames_until_closed()
        slow.close()
        assert [int(frame.body[:8]) for frame in received] == list(range(2000))
        assert broker.wait() == 0


def test_a_drain_that_times_out_logs_what_was_cut_off_and_exits_0(start_broker: StartBroker) -> None:
    """Threads that have nothing to cut off log nothing."""
    broker = start_broker(drain="500ms")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        assert broker.wait() == 0
        logged = re.findall(r"drain ran out: (\d+) connections cut off, (\d+) bytes not sent", broker.log_text())
        assert [connections for connections, _ in logged] == ["1"], broker.log_text()
        assert int(logged[0][1]) > 1 << 20


@contextlib.contextmanager
def draining(start_broker: StartBroker) -> Iterator[tuple[BrokerProcess, Wire, Wire]]:
    """Yields a broker after its first signal, with a subscriber that does not read, and its publisher."""
    broker = start_broker(drain="60s")
    slow, publisher = stuck(broker)
    with slow, publisher:
        broker.terminate()
        eventually(lambda: refuses(broker), "the broker accepts no more connections")
        yield broker, slow, publisher


def test_second_signal_stops_at_once(start_broker: StartBroker) -> None:
    with draining(start_broker) as (broker, _, _):
        assert broker.alive, "the broker ended without a drain"
        began = time.monotonic()
        broker.terminate()
        broker.wait()
        assert time.monotonic() - began < 30, "the drain time was 60 s"


def test_what_a_worker_has_is_delivered_to_no_other_worker_while_draining(start_broker: StartBroker) -> None:
    """The workers' connections end one after the other, and an ACK would not be read any more."""
    broker = start_broker()
    queues = [f"/queue/jobs{number}" for number in range(8)]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Wire(broker.port)) for _ in range(8)]
        for worker in workers:
            worker.connect()
            for queue in queues:
                worker.subscribe(queue, queue, ack="client-individual")
        workers[0].send(*(frames.send(queue) for queue in queues for _ in workers))
        for worker in workers:
            for _ in queues:
                worker.expect("MESSAGE")
        broker.terminate()
        for worker in workers:
            assert worker.frames_until_closed() == []
            worker.close()
        assert broker.wait() == 0
    assert "64 messages of queues end with the broker" in broker.log_text()


def test_new_connections_are_refused_while_draining(start_broker: StartBroker) -> None:
    with draining(start_broker) as (broker, slow, publisher):
        for wire in (publisher, slow):
            wire.frames_until_closed()
            wire.close()
        assert broker.wait() == 0


def test_publishers_that_wait_for_memory_do_not_delay_the_close_of_others(start_broker: StartBroker) -> None:
    """A queue that nobody reads has filled the memory, and its publisher waits: there will never be room."""
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


def test_clients_that_beat_are_not_silent_while_the_broker_drains(start_broker: StartBroker) -> None:
    """A publisher waits for room until half of `drain` is over; heart-beats that come meanwhile are not read."""
    broker = start_broker(drain="8s", memory_limit="4MiB", heartbeat="600,600")
    with (
        Wire(broker.port) as publisher,
        Wire(broker.port) as session,
        WebSocket.connected(broker.port, heart_beat="600,600") as websocket,
    ):
        publisher.connect()
        session.connect(heart_beat="600,600")
        publisher.send(*(frames.send_counted("/queue/forgotten", b"." * 50_000) for _ in range(120)))
        eventually(lambda: answer(session, "memory")["short"], "memory is short")
        broker.terminate()
        websocket.expect_close(1001)
        session.expect_closed()
        session.close()
        publisher.frames_until_closed()
        publisher.close()
        assert broker.wait() == 0
        assert "E-HEART-BEAT-TIMEOUT" not in broker.log_text()


def test_a_slow_consumer_does_not_delay_the_close_of_others(start_broker: StartBroker) -> None:
    """Its pending bytes take longer to read than `drain`, and its policy does not cut it off in that time."""
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

        def read_slowly() -> None:
            with contextlib.suppress(OSError):
                while not ended.wait(0.05) and slow.sock.recv(1 << 17):
                    pass

        reader = threading.Thread(target=read_slowly, daemon=True)
        reader.start()
        publisher.send(*(frames.send_counted("/topic/a", b"." * 400_000, receipt=str(at)) for at in range(2)))
        eventually(lambda: answer(websocket, "memory")["outbox_bytes"] > 64 << 10, "the consumer's outbox is full")
        broker.terminate()
        websocket.expect_close(1001)
        publisher.frames_until_closed()
        publisher.close()
        assert broker.wait() == 0
        ended.set()
        reader.join(30)
