"""A full outbox holds its publishers back, on whatever shard they are (docs/delivery.md, slow consumers)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

AHEAD_MAX = 96 << 20
"""How far two publishers may be ahead of a consumer with an outbox of 8 MiB: twice what all buffers hold."""
TRIAL_S = 1.0
"""How long a publisher tries to get further ahead."""


class SlowReader:
    """A consumer that reads a few MB a second: less than any publisher sends, enough not to be cut off."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(port, receive_buffer=1 << 16)
        self.wire.connect()
        self.taken = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        """Starts to read; all that it reads is discarded."""
        self._thread.start()

    def _read(self) -> None:
        while not self._done.wait(0.01):
            self.taken += len(self.wire.sock.recv(1 << 15))

    def close(self) -> None:
        """Stops reading and closes the connection."""
        self._done.set()
        self._thread.join()
        self.wire.discard()


BURST = 20
"""The number of 10 KB messages that come together: far more than an outbox of 16 KiB takes."""


@pytest.mark.parametrize("leaving", [frames.unsubscribe("a", receipt="bye"), frames.disconnect(receipt="bye")])
def test_accepted_messages_come_before_the_receipt_of_unsubscribe_or_disconnect(
    start_broker: StartBroker, leaving: bytes
) -> None:
    broker = start_broker(outbox_limit="16KiB", slow_consumer="block:60s")
    received: list[Frame] = []
    with Wire(broker.port, receive_buffer=1 << 14) as reader, Wire(broker.port) as publisher:
        reader.connect()
        publisher.connect()
        reader.subscribe("/topic/a", "a")

        def read() -> None:
            while not received or received[-1].command == "MESSAGE":
                received.append(reader.recv_frame())
                time.sleep(0.0005)  # slower than the publisher

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        for at in range(20):
            messages = (frames.send("/topic/a", f"{at * BURST + one}".ljust(10_000)) for one in range(BURST))
            publisher.send(*messages, frames.begin(f"{at}", receipt=f"{at}"))
            publisher.expect_receipt(f"{at}")
        reader.send(leaving)
        thread.join(reader.timeout)
    assert received[-1].command == "RECEIPT"
    assert [int(frame.body) for frame in received[:-1]] == list(range(20 * BURST))


STEADY_READ = 64 << 10
"""What is read every 50 ms: 1.3 MB a second, so a full socket buffer of megabytes stays full for over a second."""


@pytest.mark.timeout(60)
def test_a_consumer_that_reads_steadily_is_not_cut_off(start_broker: StartBroker) -> None:
    broker = start_broker(outbox_limit="1MiB", slow_consumer="block:60s")
    taken = 0
    with Wire(broker.port) as reader, Wire(broker.port, timeout=50) as publisher:
        reader.connect()
        reader.subscribe("/topic/a", "a")
        publisher.connect()

        def publish() -> None:
            with contextlib.suppress(OSError):
                while True:
                    publisher.send(*[frames.send("/topic/a", "x" * 10_000)] * 100)

        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        while taken < 5 << 20:
            received = reader.sock.recv(STEADY_READ)
            assert received and b"E-SLOW-CONSUMER" not in received
            taken += len(received)
            time.sleep(0.05)
        publisher.reset()
        thread.join()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker whose outboxes are large enough to stay over half full for some time."""
    return start_broker(outbox_limit="8MiB", slow_consumer="block:60s")


@pytest.fixture
def publishers(broker: BrokerProcess) -> Iterator[list[Wire]]:
    """Publishers on all shards: with several shards the last ones are not on the slow consumer's."""
    wires = [Wire(broker.port) for _ in range(4)]
    for wire in wires:
        wire.connect()
    yield wires
    for wire in wires:
        wire.discard()


@pytest.fixture
def slow(broker: BrokerProcess, publishers: list[Wire]) -> Iterator[SlowReader]:
    """A consumer whose outbox is full of `/topic/first`."""
    reader = SlowReader(broker.port)
    reader.wire.subscribe("/topic/first", "first")
    reader.start()
    assert send_ahead(publishers[:2], "/topic/first", reader) <= AHEAD_MAX
    yield reader
    reader.close()


def send_ahead(publishers: list[Wire], topic: str, reader: SlowReader) -> int:
    """Publishes as fast as the broker takes it. Returns how many bytes the publishers were ahead at the end."""
    data = frames.send_counted(topic, b"x" * 8192) * 64
    sent = [0] * len(publishers)
    taken_before, ahead = reader.taken, 0
    deadline = time.monotonic() + TRIAL_S
    while ahead <= AHEAD_MAX and time.monotonic() < deadline:
        for at, publisher in enumerate(publishers):
            publisher.sock.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                sent[at] += publisher.sock.send(data[sent[at] % len(data) :])
        ahead = sum(sent) - (reader.taken - taken_before)
    return ahead


@pytest.mark.parametrize("renewed", [False, True], ids=["new", "renewed"])
def test_a_new_subscription_of_a_connection_with_a_full_outbox_holds_back_publishers_of_all_shards(
    broker: BrokerProcess, publishers: list[Wire], slow: SlowReader, renewed: bool
) -> None:
    subscribe = frames.subscribe("/topic/second", "second")
    slow.wire.send(subscribe, *([frames.unsubscribe("second"), subscribe] if renewed else []))
    assert send_ahead(publishers[2:], "/topic/second", slow) <= AHEAD_MAX
