"""Consumers that come and go in crowds while producers run, and the account of what was acknowledged by whom."""

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
"""Messages that a consumer waits for before it leaves; what else it was given it never looks at."""
TIMEOUT = 30.0


def consumer_command(broker: BrokerProcess, destination: str, ack: str, prefetch: int, deed: str) -> list[str]:
    """The command that starts a consumer in a process of its own; `consumer.py` says what it prints."""
    program = Path(__file__).with_name("consumer.py")
    return [sys.executable, "-S", "-E", str(program), str(broker.port), destination, ack, str(prefetch), deed]


class Ledger:
    """What the broker accepted and whose acknowledgement it confirmed, over all threads."""

    def __init__(self, ahead: int) -> None:
        self._changed = threading.Condition()
        self._ahead = ahead
        self._stopped = False
        self.accepted: set[str] = set()
        self.acked: Counter[str] = Counter()

    def accept(self, bodies: Iterable[str]) -> None:
        """The RECEIPT of these SENDs is there."""
        with self._changed:
            self.accepted.update(bodies)

    def settle(self, bodies: Iterable[str]) -> None:
        """The RECEIPT of these ACKs is there."""
        with self._changed:
            self.acked.update(bodies)
            self._changed.notify_all()

    def is_settled(self, body: str) -> bool:
        """Whether somebody's acknowledgement was confirmed: then nobody may be given it any more."""
        with self._changed:
            return body in self.acked

    def stop(self) -> None:
        """Ends the producers."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wants_more(self) -> bool:
        """Waits until the consumers need more; `False` when they have gone."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._stopped or len(self.accepted) - len(self.acked) < self._ahead, TIMEOUT
            ), "the consumers acknowledge nothing"
            return not self._stopped


def produce(broker: BrokerProcess, ledger: Ledger, name: int) -> None:
    """SENDs numbered messages, always some ahead of what is acknowledged."""
    with Wire(broker.port, timeout=TIMEOUT) as wire:
        wire.connect()
        number = 0
        while ledger.wants_more():
            bodies = [f"{name}:{at}" for at in range(number, number + 50)]
            number += 50
            wire.send(*(frames.send_counted(QUEUE, body) for body in bodies[:-1]))
            wire.send_and_wait(QUEUE, bodies[-1])
            ledger.accept(bodies)


class Consumer:
    """One consumer: it joins, takes some messages, acknowledges some of them and leaves in its manner."""

    def __init__(self, broker: BrokerProcess, ledger: Ledger, number: int) -> None:
        self.ledger = ledger
        self.manner = MANNERS[number % len(MANNERS)]
        self.mode = "client" if self.manner is leave_cumulatively else "client-individual"
        self.messages: list[Frame] = []
        # Every seventh comes by WebSocket; each leaves in every manner sooner or later.
        self.wire = WebSocket.connected(broker.port) if number % 7 == 0 else Wire(broker.port)
        self.wire.timeout = TIMEOUT
        if number % 7 != 0:
            self.wire.connect()
        self.wire.send(frames.subscribe(QUEUE, "0", ack=self.mode, prefetch_count=PREFETCH))

    def visit(self) -> None:
        """Takes, acknowledges, leaves."""
        while len(self.messages) < TAKEN:
            self.take(self.wire.expect("MESSAGE"))
        self.manner(self)
        self.wire.discard()
        newest: dict[str, int] = {}
        for message in self.messages:
            producer, _, number = message.text.partition(":")
            if message.header("redelivered") is None:
                assert int(number) > newest.get(producer, -1), f"{message} after {newest}"
                newest[producer] = int(number)

    def take(self, message: Frame) -> None:
        """A message that came; nobody's acknowledgement of it may have been confirmed."""
        assert not self.ledger.is_settled(message.text), f"acknowledged, and here again: {message}"
        self.messages.append(message)

    def ack(self, *messages: Frame) -> None:
        """ACKs, and waits for all their RECEIPTs."""
        self.wire.send(*(frames.ack(id=message["ack"], receipt=message.text) for message in messages))
        self.read_to(messages[-1].text)

    def read_to(self, receipt: str) -> None:
        """Reads up to a RECEIPT; what is given to the consumer meanwhile stays unacknowledged."""
        while True:
            frame = self.wire.recv_frame()
            if frame.command == "MESSAGE":
                self.take(frame)
            else:
                assert frame.command == "RECEIPT", frame
                if frame["receipt-id"] == receipt:
                    return


def leave_in_order(consumer: Consumer) -> None:
    """Acknowledges what it took, then DISCONNECT."""
    taken = consumer.messages[:TAKEN]
    consumer.ack(*taken)
    consumer.ledger.settle(message.text for message in taken)
    consumer.wire.send(frames.disconnect(receipt="bye"))
    consumer.read_to("bye")


def leave_by_unsubscribing(consumer: Consumer) -> None:
    """Acknowledges some out of order, then UNSUBSCRIBE; the connection outlives the subscription."""
    taken = [consumer.messages[at] for at in (3, 1)]
    consumer.ack(*taken)
    consumer.ledger.settle(message.text for message in taken)
    consumer.wire.send(frames.unsubscribe("0", receipt="gone"))
    consumer.read_to("gone")


def leave_by_reset(consumer: Consumer) -> None:
    """Acknowledges one, then the connection is lost."""
    consumer.ack(consumer.messages[0])
    consumer.ledger.settle([consumer.messages[0].text])
    consumer.wire.reset()


def leave_cumulatively(consumer: Consumer) -> None:
    """One ACK for the first three, then just closes."""
    consumer.ack(consumer.messages[2])
    consumer.ledger.settle(message.text for message in consumer.messages[:3])


def leave_with_empty_hands(consumer: Consumer) -> None:
    """Acknowledges nothing at all, then closes."""


MANNERS: list[Callable[[Consumer], None]] = [
    leave_in_order,
    leave_by_unsubscribing,
    leave_by_reset,
    leave_cumulatively,
    leave_with_empty_hands,
]


def crowd(broker: BrokerProcess, ledger: Ledger, numbers: range, window: int) -> None:
    """These consumers, of whom up to `window` are there at a time; whoever came first leaves first."""
    present: deque[Consumer] = deque()
    for number in numbers:
        present.append(Consumer(broker, ledger, number))
        if len(present) > window:
            present.popleft().visit()
    for consumer in present:
        consumer.visit()


def churn(broker: BrokerProcess, *, consumers: int, present: int, crowds: int = 8, producers: int = 2) -> Ledger:
    """Runs `consumers` of whom about `present` are there at a time, then lets one last consumer take what is left.

    Fails unless every accepted message was acknowledged exactly once.
    """
    ledger = Ledger(ahead=present * PREFETCH + 500)
    share = consumers // crowds
    with ThreadPoolExecutor(crowds + producers) as threads:
        sources = [threads.submit(produce, broker, ledger, name) for name in range(producers)]
        visits = [
            threads.submit(crowd, broker, ledger, range(at * share, (at + 1) * share), present // crowds)
            for at in range(crowds)
        ]
        try:
            for visit in visits:
                visit.result()
        finally:
            ledger.stop()
        for source in sources:
            source.result()
    drain(broker, ledger)
    assert set(ledger.acked.values()) == {1}
    assert ledger.acked.keys() == ledger.accepted
    return ledger


def drain(broker: BrokerProcess, ledger: Ledger) -> None:
    """One consumer takes all that nobody acknowledged, and no more is there."""
    left = ledger.accepted - ledger.acked.keys()
    with Wire(broker.port, timeout=TIMEOUT) as wire:
        wire.connect()
        wire.send(frames.subscribe(QUEUE, "0", ack="client", prefetch_count=0))
        for _ in left:
            message = wire.expect("MESSAGE")
            ledger.settle([message.text])
        wire.send(frames.ack(id=message["ack"]), frames.disconnect(receipt="bye"))
        wire.expect_receipt("bye")
