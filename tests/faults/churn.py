"""Many consumers that join and leave while producers run, and a tally of accepted and acknowledged messages."""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support import frames
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import WebSocket

QUEUE = "/queue/churn"
PREFETCH = 10
TAKEN = 5
"""Messages that a consumer waits for before it leaves; it ignores all others that it is sent."""
TIMEOUT = 30.0


def consumer_command(broker: BrokerProcess, destination: str, ack: str, prefetch: int, action: str) -> list[str]:
    """Returns the command that starts a consumer in a process of its own; `consumer.py` describes its output."""
    program = Path(__file__).with_name("consumer.py")
    return [sys.executable, "-S", "-E", str(program), str(broker.port), destination, ack, str(prefetch), action]


class Tally:
    """The messages that the broker accepted and the acknowledgements that it confirmed, over all threads."""

    def __init__(self, ahead: int) -> None:
        self._changed = threading.Condition()
        self._ahead = ahead
        self._stopped = False
        self.accepted: set[str] = set()
        self.acked: Counter[str] = Counter()

    def accept(self, bodies: Iterable[str]) -> None:
        """The RECEIPT of these SENDs came."""
        with self._changed:
            self.accepted.update(bodies)

    def settle(self, bodies: Iterable[str]) -> None:
        """The RECEIPT of these ACKs came."""
        with self._changed:
            self.acked.update(bodies)
            self._changed.notify_all()

    def is_settled(self, body: str) -> bool:
        """Whether an acknowledgement of the message was confirmed: then it must not be delivered again."""
        with self._changed:
            return body in self.acked

    def stop(self) -> None:
        """Stops the producers."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wants_more(self) -> bool:
        """Waits until the consumers need more messages; `False` when they have all left."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._stopped or len(self.accepted) - len(self.acked) < self._ahead, TIMEOUT
            ), "the consumers do not acknowledge any message"
            return not self._stopped


def produce(broker: BrokerProcess, tally: Tally, name: int) -> None:
    """Sends numbered messages, always a certain number ahead of what is acknowledged."""
    with Wire(broker.port, timeout=TIMEOUT) as wire:
        wire.connect()
        number = 0
        while tally.wants_more():
            bodies = [f"{name}:{at}" for at in range(number, number + 50)]
            number += 50
            wire.send(*(frames.send_counted(QUEUE, body) for body in bodies[:-1]))
            wire.send_and_wait(QUEUE, bodies[-1])
            tally.accept(bodies)


class Consumer:
    """One consumer: it joins, takes some messages, acknowledges some of them, and leaves in one of several ways."""

    def __init__(self, broker: BrokerProcess, tally: Tally, number: int) -> None:
        self.tally = tally
        self.leave = WAYS_TO_LEAVE[number % len(WAYS_TO_LEAVE)]
        self.mode = "client" if self.leave is leave_cumulatively else "client-individual"
        self.messages: list[Frame] = []
        # Every seventh consumer connects by WebSocket; each way to leave is used over both transports.
        self.wire = WebSocket.connected(broker.port) if number % 7 == 0 else Wire(broker.port)
        self.wire.timeout = TIMEOUT
        if number % 7 != 0:
            self.wire.connect()
        self.wire.send(frames.subscribe(QUEUE, "0", ack=self.mode, prefetch_count=PREFETCH))

    def visit(self) -> None:
        """Takes messages, acknowledges and leaves."""
        while len(self.messages) < TAKEN:
            self.take(self.wire.expect("MESSAGE"))
        self.leave(self)
        self.wire.discard()
        newest: dict[str, int] = {}
        for message in self.messages:
            producer, _, number = message.text.partition(":")
            if message.header("redelivered") is None:
                assert int(number) > newest.get(producer, -1), f"{message} after {newest}"
                newest[producer] = int(number)

    def take(self, message: Frame) -> None:
        """Records a message; no acknowledgement of it may have been confirmed before."""
        assert not self.tally.is_settled(message.text), f"delivered again after its acknowledgement: {message}"
        self.messages.append(message)

    def ack(self, *messages: Frame) -> None:
        """Acknowledges the messages and waits for all RECEIPTs."""
        self.wire.send(*(frames.ack(id=message["ack"], receipt=message.text) for message in messages))
        self.read_to(messages[-1].text)

    def read_to(self, receipt: str) -> None:
        """Reads up to a RECEIPT; messages that come before it stay unacknowledged."""
        while True:
            frame = self.wire.recv_frame()
            if frame.command == "MESSAGE":
                self.take(frame)
            else:
                assert frame.command == "RECEIPT", frame
                if frame["receipt-id"] == receipt:
                    return


def leave_in_order(consumer: Consumer) -> None:
    """Acknowledges what it took, then sends DISCONNECT."""
    taken = consumer.messages[:TAKEN]
    consumer.ack(*taken)
    consumer.tally.settle(message.text for message in taken)
    consumer.wire.send(frames.disconnect(receipt="bye"))
    consumer.read_to("bye")


def leave_by_unsubscribing(consumer: Consumer) -> None:
    """Acknowledges some messages out of order, then sends UNSUBSCRIBE; the connection outlives the subscription."""
    taken = [consumer.messages[at] for at in (3, 1)]
    consumer.ack(*taken)
    consumer.tally.settle(message.text for message in taken)
    consumer.wire.send(frames.unsubscribe("0", receipt="gone"))
    consumer.read_to("gone")


def leave_by_reset(consumer: Consumer) -> None:
    """Acknowledges one message, then resets the connection."""
    consumer.ack(consumer.messages[0])
    consumer.tally.settle([consumer.messages[0].text])
    consumer.wire.reset()


def leave_cumulatively(consumer: Consumer) -> None:
    """Acknowledges the first three messages with one ACK, then closes the connection."""
    consumer.ack(consumer.messages[2])
    consumer.tally.settle(message.text for message in consumer.messages[:3])


def leave_without_an_ack(consumer: Consumer) -> None:
    """Acknowledges nothing, then closes the connection."""


WAYS_TO_LEAVE: list[Callable[[Consumer], None]] = [
    leave_in_order,
    leave_by_unsubscribing,
    leave_by_reset,
    leave_cumulatively,
    leave_without_an_ack,
]


def run_consumers(broker: BrokerProcess, tally: Tally, numbers: range, window: int) -> None:
    """Runs these consumers; up to `window` are connected at a time, and the first to join is the first to leave."""
    present: deque[Consumer] = deque()
    for number in numbers:
        present.append(Consumer(broker, tally, number))
        if len(present) > window:
            present.popleft().visit()
    for consumer in present:
        consumer.visit()


def churn(broker: BrokerProcess, *, consumers: int, present: int, groups: int = 8, producers: int = 2) -> Tally:
    """Runs `consumers`, of which about `present` are connected at a time; one last consumer takes what is left.

    Fails unless every accepted message was acknowledged exactly once.
    """
    tally = Tally(ahead=present * PREFETCH + 500)
    share = consumers // groups
    with ThreadPoolExecutor(groups + producers) as threads:
        sources = [threads.submit(produce, broker, tally, name) for name in range(producers)]
        visits = [
            threads.submit(run_consumers, broker, tally, range(at * share, (at + 1) * share), present // groups)
            for at in range(groups)
        ]
        try:
            for visit in visits:
                visit.result()
        finally:
            tally.stop()
        for source in sources:
            source.result()
    drain(broker, tally)
    assert set(tally.acked.values()) == {1}
    assert tally.acked.keys() == tally.accepted
    return tally


def drain(broker: BrokerProcess, tally: Tally) -> None:
    """One consumer takes all messages that nobody acknowledged; no more may be left."""
    left = tally.accepted - tally.acked.keys()
    with Wire(broker.port, timeout=TIMEOUT) as wire:
        wire.connect()
        wire.send(frames.subscribe(QUEUE, "0", ack="client", prefetch_count=0))
        for _ in left:
            message = wire.expect("MESSAGE")
            tally.settle([message.text])
        wire.send(frames.ack(id=message["ack"]), frames.disconnect(receipt="bye"))
        wire.expect_receipt("bye")
