"""A thousand consumers are killed at random while producers run: every message is acknowledged once, none is lost."""

from __future__ import annotations

import collections
import os
import random
import select
import subprocess
import sys
import threading
from pathlib import Path

from tests.model.links import TcpLink
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.wire import Wire

RESETS = 880
PROCESS_KILLS = 120
CONNECTIONS = 16
PROCESSES = 3
QUEUES = [f"/queue/kills/{name}" for name in "abcd"]
AHEAD = 2000
"""Messages that producers may be ahead of the consumers."""
PATIENCE_S = 30


class Books:
    """What was sent, what came, and what was acknowledged, with or without the RECEIPT."""

    def __init__(self) -> None:
        self.placed: set[str] = set()
        self.deliveries: collections.Counter[str] = collections.Counter()
        self.acked: collections.Counter[str] = collections.Counter()
        self.in_doubt: set[str] = set()
        """Of some of their ACKs the RECEIPT was never read, because the consumer was killed."""

    def unsettled(self) -> set[str]:
        """In a queue for certain, and no ACK was ever sent that may count."""
        return {body for body in self.placed if not self.acked[body] and body not in self.in_doubt}

    def check(self) -> None:
        """Each once: two RECEIPTs for ACKs of one message would mean that it came again after the first."""
        twice = [body for body, count in self.acked.items() if count > 1]
        assert not twice, f"acknowledged twice: {twice[:20]} ({len(twice)})"
        lost = self.unsettled()
        assert not lost, f"lost: {sorted(lost)[:20]} ({len(lost)})"


class Consumer:
    """A connection in this process; `reset` kills it."""

    def __init__(self, port: int, books: Books, chance: random.Random) -> None:
        self.books = books
        self.link = TcpLink(port, timeout=PATIENCE_S)
        self.link.connect()
        self.mode = chance.choice(["client", "client-individual"])
        pattern = chance.choice([*QUEUES, "/queue/kills/*"])
        prefetch = chance.choice([1, 3, 20, 100])
        self.link.send(frames.subscribe(pattern, "0", ack=self.mode, prefetch_count=prefetch))
        self.keeps = chance.randrange(prefetch)
        """It leaves so many unacknowledged, so that a kill finds it with some."""
        self.held: list[Frame] = []
        self.waiting: dict[str, list[str]] = {}
        """Bodies by the receipt of the ACK that covers them."""
        self.last: dict[tuple[str, str], int] = {}

    def read(self) -> None:
        """Takes what is there and acknowledges what it does not keep."""
        found = self.link.read()
        assert found is not None, "the broker closed a consumer"
        for frame in found:
            if frame.command == "RECEIPT":
                self.books.acked.update(self.waiting.pop(frame["receipt-id"]))
                continue
            assert frame.command == "MESSAGE", frame
            self._take(frame)
            self.held.append(frame)
        self.acknowledge()

    def acknowledge(self) -> None:
        """The oldest, down to what it keeps."""
        due = max(0, len(self.held) - self.keeps)
        batch, self.held = self.held[:due], self.held[due:]
        if self.mode == "client":
            self._ack(batch)
        else:
            for frame in batch:
                self._ack([frame])

    def _take(self, frame: Frame) -> None:
        body, queue = frame.text, frame["destination"]
        self.books.deliveries[body] += 1
        if "redelivered" not in frame:
            producer, number = body.split(":")
            assert int(number) > self.last.get((queue, producer), -1), f"{body} out of turn in {queue}"
            self.last[queue, producer] = int(number)

    def _ack(self, batch: list[Frame]) -> None:
        if batch:
            receipt = batch[-1].text
            self.waiting[receipt] = [frame.text for frame in batch]
            self.link.send(frames.ack(id=batch[-1]["ack"], receipt=receipt))

    def kill(self) -> None:
        """A TCP reset; ACKs without RECEIPT may count or not."""
        self.link.reset()
        for bodies in self.waiting.values():
            self.books.in_doubt.update(bodies)


class ConsumerProcess:
    """A real process; `kill` is SIGKILL."""

    def __init__(self, port: int, books: Books, chance: random.Random) -> None:
        self.books = books
        command = [sys.executable, "-m", "tests.soak.consumer", str(port), chance.choice(QUEUES), "50"]
        self.process = subprocess.Popen(
            command, cwd=Path(__file__).parent.parent.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.ready = False
        self._buffer = b""
        self.waiting: set[str] = set()

    def read(self) -> bool:
        """Takes what it has said; `False` at the end."""
        said = os.read(self.output.fileno(), 1 << 16)
        *lines, self._buffer = (self._buffer + said).split(b"\n")
        for line in lines:
            word, _, body = line.decode().partition(" ")
            if word == "ready":
                self.ready = True
            elif word == "got":
                self.books.deliveries[body] += 1
            elif word == "acks":
                self.waiting.add(body)
            else:
                self.books.acked[body] += 1
                self.waiting.discard(body)
        return bool(said)

    def kill(self) -> None:
        """Kills it, reaps it, and hears its last words."""
        self.process.kill()
        self.process.wait()
        while self.read():
            pass
        self.output.close()
        self.books.in_doubt |= self.waiting


class Producer(threading.Thread):
    """Sends numbered messages, some in transactions, until it is told to stop."""

    def __init__(self, port: int, name: str, books: Books, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.books = books
        self.stop = stop
        self.failure: BaseException | None = None
        self._wire = Wire(port, timeout=PATIENCE_S)
        self._wire.connect()

    def run(self) -> None:
        try:
            with self._wire:
                self._send_all()
        except BaseException as failure:
            self.failure = failure

    def _send_all(self) -> None:
        number = 0
        while not self.stop.is_set():
            if len(self.books.placed) - len(self.books.acked) > AHEAD:
                self.stop.wait(0.005)
                continue
            self._batch(range(number, number + 20), transaction=number % 100 == 0)
            number += 20

    def _batch(self, numbers: range, transaction: bool) -> None:
        bodies = [f"{self.name}:{number}" for number in numbers]
        name = "t" if transaction else None
        sends = [frames.send(QUEUES[at % 4], body, transaction=name) for at, body in enumerate(bodies)]
        if transaction:
            self._wire.send(frames.begin("t"), *sends, frames.commit("t", receipt="placed"))
        else:
            self._wire.send(*sends[:-1], frames.send(QUEUES[3], bodies[-1], receipt="placed"))
        self._wire.expect_receipt("placed")
        self.books.placed.update(bodies)


class Crowd:
    """All consumers, read from one thread."""

    def __init__(self, port: int, books: Books, chance: random.Random) -> None:
        self.port, self.books, self.chance = port, books, chance
        self.connections = [Consumer(port, books, chance) for _ in range(CONNECTIONS)]
        self.processes = [ConsumerProcess(port, books, chance) for _ in range(PROCESSES)]
        self.killed = 0

    def pump(self, timeout: float) -> None:
        """Reads once from all that have something."""
        connections = {each.link.sock.fileno(): each for each in self.connections}
        processes = {each.output.fileno(): each for each in self.processes}
        ready, _, _ = select.select([*connections, *processes], [], [], timeout)
        for descriptor in ready:
            if descriptor in connections:
                connections[descriptor].read()
            else:
                assert processes[descriptor].read(), "a consumer process ended by itself"

    @property
    def is_answered(self) -> bool:
        """Whether every ACK has its RECEIPT."""
        return not any(each.waiting for each in self.connections) and not any(each.waiting for each in self.processes)

    def kill_connection(self) -> None:
        """Resets one, and another one comes."""
        victim = self.connections.pop(self.chance.randrange(len(self.connections)))
        victim.kill()
        self.connections.append(Consumer(self.port, self.books, self.chance))

    def kill_process(self) -> bool:
        """Kills one that had the time to begin, and another one comes."""
        ready = [each for each in self.processes if each.ready]
        if not ready:
            return False
        victim = self.chance.choice(ready)
        self.processes.remove(victim)
        victim.kill()
        self.processes.append(ConsumerProcess(self.port, self.books, self.chance))
        return True

    def close(self) -> None:
        """Ends all of them."""
        for each in self.connections:
            each.link.discard()
        for process in self.processes:
            process.kill()


def test_a_thousand_killed_consumers_lose_and_double_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    books, stop = Books(), threading.Event()
    producers = [Producer(broker.port, f"p{number}", books, stop) for number in range(2)]
    crowd = Crowd(broker.port, books, chance)
    try:
        for producer in producers:
            producer.start()
        kill_at_random(crowd, chance)
        stop.set()
        for producer in producers:
            producer.join(PATIENCE_S)
            assert producer.failure is None, producer.failure
        drain(broker.port, crowd, books)
    finally:
        stop.set()
        crowd.close()
    books.check()
    returned = sum(count > 1 for count in books.deliveries.values())
    print(f"{len(books.placed)} messages, {returned} of them came more than once, {len(books.in_doubt)} ACKs in doubt")
    assert returned > 0, "no kill hit a consumer that held anything"


def kill_at_random(crowd: Crowd, chance: random.Random) -> None:
    """All the kills, with a little work in between."""
    resets, kills = RESETS, PROCESS_KILLS
    while resets or kills:
        for _ in range(chance.randrange(1, 6)):
            crowd.pump(0.01)
        if kills and chance.random() < kills / (resets + kills):
            kills -= crowd.kill_process()
        elif resets:
            crowd.kill_connection()
            resets -= 1


def drain(port: int, crowd: Crowd, books: Books) -> None:
    """Until every message is settled; then one more message per queue comes, and nothing before it."""
    while crowd.processes:  # which keep some for ever
        crowd.processes.pop().kill()
    for consumer in crowd.connections:
        consumer.keeps = 0
        consumer.acknowledge()
    left = PATIENCE_S / 0.05
    while books.unsettled() or not crowd.is_answered:
        crowd.pump(0.05)
        left -= 1
        assert left > 0, f"never came, or never answered: {sorted(books.unsettled())[:20]}"
    crowd.close()
    crowd.connections = []
    with Wire(port, timeout=PATIENCE_S) as last:
        last.connect()
        for queue in QUEUES:
            last.send_and_wait(queue, "last")
        last.send(frames.subscribe("/queue/kills/*", "0"))
        ends = 0
        while ends < len(QUEUES):
            message = last.expect_message()
            ends += message.text == "last"
            books.acked[message.text] += message.text != "last"
