"""A thousand consumers are killed at random while producers run: every message is acknowledged exactly once."""

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
"""The number of messages that producers may be ahead of the consumers."""
TIMEOUT_S = 30


class Tally:
    """The messages that were sent, that came, and that were acknowledged, with or without a RECEIPT."""

    def __init__(self) -> None:
        self.placed: set[str] = set()
        self.deliveries: collections.Counter[str] = collections.Counter()
        self.acked: collections.Counter[str] = collections.Counter()
        self.in_doubt: set[str] = set()
        """Messages for some of whose ACKs no RECEIPT was read, because the consumer was killed."""

    def unsettled(self) -> set[str]:
        """Returns the messages that are certainly in a queue: no ACK of them can have had an effect."""
        return {body for body in self.placed if not self.acked[body] and body not in self.in_doubt}

    def check(self) -> None:
        """Two RECEIPTs for ACKs of one message would mean that it was delivered again after the first ACK."""
        twice = [body for body, count in self.acked.items() if count > 1]
        assert not twice, f"acknowledged twice: {twice[:20]} ({len(twice)})"
        lost = self.unsettled()
        assert not lost, f"lost: {sorted(lost)[:20]} ({len(lost)})"


class Consumer:
    """A connection in this process; `kill` resets it."""

    def __init__(self, port: int, tally: Tally, chance: random.Random) -> None:
        self.tally = tally
        self.link = TcpLink(port, timeout=TIMEOUT_S)
        self.link.connect()
        self.mode = chance.choice(["client", "client-individual"])
        pattern = chance.choice([*QUEUES, "/queue/kills/*"])
        prefetch = chance.choice([1, 3, 20, 100])
        self.link.send(frames.subscribe(pattern, "0", ack=self.mode, prefetch_count=prefetch))
        self.keeps = chance.randrange(prefetch)
        """The number of messages that it leaves unacknowledged, so that a kill leaves some."""
        self.held: list[Frame] = []
        self.waiting: dict[str, list[str]] = {}
        """Bodies, by the receipt of the ACK that covers them."""
        self.last: dict[tuple[str, str], int] = {}

    def read(self) -> None:
        """Reads what has come, and acknowledges what it does not keep."""
        found = self.link.read()
        assert found is not None, "the broker closed a consumer"
        for frame in found:
            if frame.command == "RECEIPT":
                self.tally.acked.update(self.waiting.pop(frame["receipt-id"]))
                continue
            assert frame.command == "MESSAGE", frame
            self._take(frame)
            self.held.append(frame)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledges the oldest messages, all except those that it keeps."""
        due = max(0, len(self.held) - self.keeps)
        batch, self.held = self.held[:due], self.held[due:]
        if self.mode == "client":
            self._ack(batch)
        else:
            for frame in batch:
                self._ack([frame])

    def _take(self, frame: Frame) -> None:
        body, queue = frame.text, frame["destination"]
        self.tally.deliveries[body] += 1
        if "redelivered" not in frame:
            producer, number = body.split(":")
            assert int(number) > self.last.get((queue, producer), -1), f"{body} out of order in {queue}"
            self.last[queue, producer] = int(number)

    def _ack(self, batch: list[Frame]) -> None:
        if batch:
            receipt = batch[-1].text
            self.waiting[receipt] = [frame.text for frame in batch]
            self.link.send(frames.ack(id=batch[-1]["ack"], receipt=receipt))

    def kill(self) -> None:
        """Resets the connection; ACKs without RECEIPT may or may not have had an effect."""
        self.link.reset()
        for bodies in self.waiting.values():
            self.tally.in_doubt.update(bodies)


class ConsumerProcess:
    """A real process; `kill` is SIGKILL."""

    def __init__(self, port: int, tally: Tally, chance: random.Random) -> None:
        self.tally = tally
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
        """Reads what it has printed; `False` at the end."""
        output = os.read(self.output.fileno(), 1 << 16)
        *lines, self._buffer = (self._buffer + output).split(b"\n")
        for line in lines:
            word, _, body = line.decode().partition(" ")
            if word == "ready":
                self.ready = True
            elif word == "got":
                self.tally.deliveries[body] += 1
            elif word == "acks":
                self.waiting.add(body)
            else:
                self.tally.acked[body] += 1
                self.waiting.discard(body)
        return bool(output)

    def kill(self) -> None:
        """Kills it, waits for its end, and reads the rest of its output."""
        self.process.kill()
        self.process.wait()
        while self.read():
            pass
        self.output.close()
        self.tally.in_doubt |= self.waiting


class Producer(threading.Thread):
    """Sends numbered messages, some in transactions, until `stop` is set."""

    def __init__(self, port: int, name: str, tally: Tally, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.tally = tally
        self.stop = stop
        self.failure: BaseException | None = None
        self._wire = Wire(port, timeout=TIMEOUT_S)
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
            if len(self.tally.placed) - len(self.tally.acked) > AHEAD:
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
        self.tally.placed.update(bodies)


class Consumers:
    """All consumers, read from one thread."""

    def __init__(self, port: int, tally: Tally, chance: random.Random) -> None:
        self.port, self.tally, self.chance = port, tally, chance
        self.connections = [Consumer(port, tally, chance) for _ in range(CONNECTIONS)]
        self.processes = [ConsumerProcess(port, tally, chance) for _ in range(PROCESSES)]
        self.killed = 0

    def receive(self, timeout: float) -> None:
        """Reads once from each consumer that has input."""
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
        """Resets one connection and opens another."""
        victim = self.connections.pop(self.chance.randrange(len(self.connections)))
        victim.kill()
        self.connections.append(Consumer(self.port, self.tally, self.chance))

    def kill_process(self) -> bool:
        """Kills a process that has had the time to start, and starts another."""
        ready = [each for each in self.processes if each.ready]
        if not ready:
            return False
        victim = self.chance.choice(ready)
        self.processes.remove(victim)
        victim.kill()
        self.processes.append(ConsumerProcess(self.port, self.tally, self.chance))
        return True

    def close(self) -> None:
        """Ends all consumers."""
        for each in self.connections:
            each.link.discard()
        for process in self.processes:
            process.kill()


def test_a_thousand_killed_consumers_lose_and_duplicate_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    tally, stop = Tally(), threading.Event()
    producers = [Producer(broker.port, f"p{number}", tally, stop) for number in range(2)]
    consumers = Consumers(broker.port, tally, chance)
    try:
        for producer in producers:
            producer.start()
        kill_at_random(consumers, chance)
        stop.set()
        for producer in producers:
            producer.join(TIMEOUT_S)
            assert producer.failure is None, producer.failure
        drain(broker.port, consumers, tally)
    finally:
        stop.set()
        consumers.close()
    tally.check()
    returned = sum(count > 1 for count in tally.deliveries.values())
    print(f"{len(tally.placed)} messages, {returned} of them came more than once, {len(tally.in_doubt)} ACKs in doubt")
    assert returned > 0, "no killed consumer held a message"


def kill_at_random(consumers: Consumers, chance: random.Random) -> None:
    """Performs all kills, with a little work in between."""
    resets, kills = RESETS, PROCESS_KILLS
    while resets or kills:
        for _ in range(chance.randrange(1, 6)):
            consumers.receive(0.01)
        if kills and chance.random() < kills / (resets + kills):
            kills -= consumers.kill_process()
        elif resets:
            consumers.kill_connection()
            resets -= 1


def drain(port: int, consumers: Consumers, tally: Tally) -> None:
    """Runs until every message is settled; then one more message per queue comes, and nothing before it."""
    while consumers.processes:  # they keep some messages unacknowledged
        consumers.processes.pop().kill()
    for consumer in consumers.connections:
        consumer.keeps = 0
        consumer.acknowledge()
    left = TIMEOUT_S / 0.05
    while tally.unsettled() or not consumers.is_answered:
        consumers.receive(0.05)
        left -= 1
        assert left > 0, f"not delivered, or ACK not confirmed: {sorted(tally.unsettled())[:20]}"
    consumers.close()
    consumers.connections = []
    with Wire(port, timeout=TIMEOUT_S) as last:
        last.connect()
        for queue in QUEUES:
            last.send_and_wait(queue, "last")
        last.send(frames.subscribe("/queue/kills/*", "0"))
        ends = 0
        while ends < len(QUEUES):
            message = last.expect_message()
            ends += message.text == "last"
            tally.acked[message.text] += message.text != "last"
