"""Tens of thousands of consumers, and consumers that are killed: no message is lost or acknowledged twice."""

from __future__ import annotations

import contextlib
import random
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO

import pytest

from tests.faults.churn import QUEUE, churn, consumer_command
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.probes import descriptors, raised_descriptor_limit
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

CONSUMERS = 20_000
PRESENT = 10_000
"""Consumers that are connected at a time."""

KILLS = 1000
WORKERS = 8
"""Consumer processes at a time."""


@pytest.fixture
def allowed() -> Iterator[int]:
    """The descriptor limit of this process, raised for the test."""
    with raised_descriptor_limit() as limit:
        yield limit


def test_churn_among_ten_thousand_consumers_loses_nothing(start_broker: StartBroker, allowed: int) -> None:
    if allowed < PRESENT + 200:
        pytest.skip(f"needs {PRESENT + 200} descriptors, the limit here is {allowed}: raise `ulimit -Hn`")
    broker = start_broker()
    before = descriptors(broker.pid)
    tally = churn(broker, consumers=CONSUMERS, present=PRESENT)
    assert len(tally.accepted) > CONSUMERS
    eventually(lambda: descriptors(broker.pid) == before, "all descriptors are closed")


class Worker:
    """A consumer process that acknowledges one message after the other until it is killed."""

    def __init__(self, broker: BrokerProcess) -> None:
        command = consumer_command(broker, QUEUE, "client-individual", 5, "work")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.holds: set[str] = set()
        self._output = b""

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def read(self) -> list[tuple[str, str]]:
        """Returns what it has printed since the last call, as (event, body); waits for output or its end."""
        self._output += self.stdout.read1(1 << 16)  # type: ignore[attr-defined]
        *lines, self._output = self._output.split(b"\n")
        return [(event, body) for event, _, body in (line.decode().partition(" ") for line in lines)]

    def kill(self) -> list[tuple[str, str]]:
        """Kills it with SIGKILL; returns what it had still printed."""
        self.process.kill()
        rest = []
        while output := self.read():
            rest += output
        self.process.wait()
        self.stdout.close()
        return rest


def test_a_thousand_kills_lose_and_duplicate_nothing(
    start_broker: StartBroker, record_property: Callable[[str, object], None]
) -> None:
    """A message whose ACK got its RECEIPT is gone; one that a killed worker had not confirmed may or may not be."""
    broker = start_broker()
    seed = time.time_ns()
    print(f"seed {seed}")
    record_property("seed", seed)
    workers = Workers(broker, random.Random(seed))
    with contextlib.ExitStack() as cleanup, Wire(broker.port, timeout=30) as producer:
        cleanup.callback(workers.close)
        producer.connect()
        sent = 0
        for _ in range(WORKERS):
            workers.add()
        while workers.kills < KILLS:
            bodies = [str(number) for number in range(sent, sent + 50)]
            sent += 50
            producer.send(*(frames.send_counted(QUEUE, body) for body in bodies[:-1]))
            producer.send_and_wait(QUEUE, bodies[-1])
            workers.work_until(sent - 200)
    left = {str(number) for number in range(sent)} - workers.acked
    with Wire(broker.port, timeout=30) as last:
        last.connect()
        last.send(frames.subscribe(QUEUE, "0", ack="auto"))
        rest: list[str] = []
        while not left - workers.doubtful <= set(rest):
            rest.append(last.expect("MESSAGE").text)
        last.send(frames.disconnect(receipt="bye"))
        rest += [frame.text for frame in last.frames_until_closed() if frame.command == "MESSAGE"]
    assert len(rest) == len(set(rest))
    assert not set(rest) & workers.acked, "delivered again after its acknowledgement"


class Workers:
    """Workers that are killed at random and replaced."""

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        self.kills = 0
        self.acked: set[str] = set()
        self.doubtful: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []

    def add(self) -> None:
        """Starts one more worker."""
        worker = Worker(self.broker)
        self._workers.append(worker)
        self._selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def work_until(self, acked: int) -> None:
        """Lets them work until `acked` messages are acknowledged or in doubt; kills one worker now and then."""
        deadline = time.monotonic() + 60
        while len(self.acked | self.doubtful) < acked:
            assert time.monotonic() < deadline, f"only {len(self.acked)} of {acked} acknowledged"
            for key, _ in self._selector.select(1):
                worker: Worker = key.data
                if worker in self._workers:
                    self._note(worker, worker.read())
                    if self.chance.random() < 0.1:
                        self._kill(self.chance.choice(self._workers))

    def _kill(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.stdout)
        self._note(worker, worker.kill())
        self.doubtful |= worker.holds
        self.kills += 1
        self.add()

    def _note(self, worker: Worker, output: list[tuple[str, str]]) -> None:
        for event, body in output:
            if event == "took":
                assert body not in self.acked, f"{body} was delivered again after its acknowledgement"
                worker.holds.add(body)
            else:
                assert body not in self.acked, f"{body} was acknowledged twice"
                worker.holds.remove(body)
                self.acked.add(body)

    def close(self) -> None:
        """Kills all workers."""
        for worker in self._workers:
            worker.kill()
        self._selector.close()
