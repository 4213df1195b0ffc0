"""The rounds of `test_store_kill.py`: load, the end of the process, another process, and what it has."""

from __future__ import annotations

import random
import signal
from pathlib import Path

from tests.faults.store_load import END, LAST_VALUES, PATTERNS, QUEUES, TOPICS, Client, Consumer, Publisher, Trigger
from tests.faults.store_model import Found, Model
from tests.support import frames
from tests.support.parser import Frame
from tests.support.queues import dead_letters, fresh, until_receipt
from tests.support.stored import PERSISTENT, Stored
from tests.support.wire import Wire

DEAD = {dead_letters(queue): queue for queue in QUEUES} | {dead_letters(topic): "d1" for topic in TOPICS}
"""The dead-letter queues, and which place their messages have left."""
PLACES = [*((queue, queue) for queue in QUEUES), *DEAD.items()]
"""The queues, and the places that their messages belong to."""
PUBLISHERS = 3
RECEIPTS_MAX = 700
"""The broker is ended after this many RECEIPTs at most."""
SHARE_LEFT = 0.6
"""Of what waits after a restart, so much is left for the next round."""


class Rounds:
    """A directory that many brokers use, one after the other, and the model of what it has."""

    def __init__(self, directory: Path, seed: int, store: str) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.model = Model()
        self.stored = Stored(directory, store=store, fsync="always", max_deliveries=4, redelivery_delay=2, drain="10s")
        self.round = 0

    def run(self, rounds: int) -> None:
        """Runs; fails at the first round after which something is wrong."""
        try:
            self.start()
            for name, pattern in PATTERNS.items():
                wire = self.stored.client()
                wire.subscribe(pattern, name, ("durable", "true"))
                wire.disconnect()
            for self.round in range(rounds):
                # What a round does may depend on the seed alone, not on how much the rounds before it have left.
                self.random = random.Random(f"{self.seed}/{self.round}")
                number = self.load()
                self.stored.kill() if number is signal.SIGKILL else self.await_end()
                self.start()
                wrong = self.check()
                assert not wrong, f"round {self.round}, {number.name}: " + "\n".join(wrong[:20])
        finally:
            self.stored.close()

    def start(self) -> None:
        """Starts a broker with another number of writers."""
        self.stored.start(writers=random.Random(f"{self.seed}/{self.round}/writers").randrange(1, 5))

    def load(self) -> signal.Signals:
        """Runs clients until the broker ends; returns by which signal."""
        broker, chance, r = self.stored.broker, self.random, self.round
        number = signal.SIGTERM if chance.random() < 0.2 else signal.SIGKILL
        trigger = Trigger(broker.pid, number, chance.randrange(1, RECEIPTS_MAX))

        def to_each() -> tuple[Model, Trigger, int]:
            return self.model, trigger, broker.port

        clients: list[Client] = [
            Publisher(*to_each(), f"r{r}p{at}", random.Random(chance.random()), LAST_VALUES[at])
            for at in range(PUBLISHERS)
        ]
        places = [QUEUES[:2], QUEUES[1:4], [QUEUES[4]], ["d1"]]
        clients += [
            Consumer(*to_each(), f"r{r}c{at}", random.Random(chance.random()), list(of_one))
            for at, of_one in enumerate(places)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join(90)
            assert not client.is_alive(), f"{client.name} hangs: {broker.log_text()}"
        for client in clients:
            if client.failure is not None:
                raise AssertionError(f"round {r}, {client.name}, {number.name}") from client.failure
        return number

    def await_end(self) -> None:
        """Waits for the end of a drain."""
        assert self.stored.broker.wait() == 0, self.stored.broker.log_text()
        self.stored.kill()

    # -- afterwards --------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Compares what the broker has with the model, and acknowledges a part of it; returns what is wrong."""
        wire = self.stored.client()
        lines = self.view(wire)
        found = [
            Found((place, message.text.partition(" ")[0]), message, destination in DEAD)
            for (destination, place), messages in lines.items()
            for message in messages
        ]
        receipt = fresh("last values")
        wire.send(frames.subscribe("/topic/last/*", "last", receipt=receipt))
        values = {message["destination"]: message.text for message in until_receipt(wire, receipt)}
        wrong = self.model.compare(found) + self.model.compare_last_values(values)
        self.settle(wire, found)
        wire.send(frames.disconnect(receipt="seen"))
        while wire.recv_frame().command == "MESSAGE":
            pass
        return wrong

    def view(self, wire: Wire) -> dict[tuple[str, str], list[Frame]]:
        """Subscribes to every place and every dead-letter queue; returns what waits there, in order."""
        by_id = {f"{destination} of {place}": (destination, place) for destination, place in PLACES}
        by_id |= {name: (pattern, name) for name, pattern in PATTERNS.items()}
        found: dict[str, list[Frame]] = {id: [] for id in by_id}
        for id, (destination, place) in by_id.items():
            headers = [("durable", "true")] if place == id else []
            wire.send(frames.subscribe(destination, id, *headers, ack="client-individual", prefetch_count=0))
        end = fresh(END)
        ends = {destination for destination, place in PLACES} | {"/topic/stored/x"}
        wire.send(*(frames.send(destination, end) for destination in ends))
        open_ends = set(by_id)
        while open_ends:
            message = wire.expect_message()
            if message.text == end:
                open_ends.discard(message["subscription"])
            if message.text.startswith(END):
                wire.send(frames.ack(id=message["ack"]))
            else:
                found[message["subscription"]].append(message)
        return {by_id[id]: messages for id, messages in found.items()}

    def settle(self, wire: Wire, found: list[Found]) -> None:
        """Acknowledges dead letters and a part of the rest; and makes sure that all deliveries are stored."""
        chosen = [one for one in found if one.is_dead or self.random.random() > SHARE_LEFT]
        keys = [one.key for one in chosen]
        self.model.acknowledge(keys)
        receipts = [fresh("settled") for _ in chosen]
        wire.send(*(frames.ack(id=one.frame["ack"], receipt=r) for one, r in zip(chosen, receipts, strict=True)))
        stored = {destination: fresh("stored") for destination in (*QUEUES, "/topic/stored/x")}
        end = fresh(END)
        wire.send(*(frames.send(to, end, PERSISTENT, receipt=receipt) for to, receipt in stored.items()))
        due = {*receipts, *stored.values()}
        while due:
            frame = wire.recv_frame()
            if frame.command == "MESSAGE":
                wire.send(frames.ack(id=frame["ack"]))
            else:
                due.remove(frame["receipt-id"])
        self.model.confirm_ack(keys)
        now = self.model.now()
        self.model.stored_at = dict.fromkeys((*QUEUES, *PATTERNS), now)
