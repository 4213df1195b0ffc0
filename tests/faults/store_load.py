"""The load of `test_store_kill.py`: clients that tell the model what they do, until the broker ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from random import Random

from tests.faults.store_model import Entry, Model, Transaction
from tests.support import frames
from tests.support.parser import Frame
from tests.support.stored import PERSISTENT
from tests.support.wire import Wire

QUEUES = [f"/queue/stored/{name}" for name in "abcdef"]
TOPICS = {"/topic/stored/x": ["d1", "d2"], "/topic/stored/y": ["d1"]}
"""The topics, each with the durable subscriptions that match it."""
PATTERNS = {"d1": "/topic/stored/*", "d2": "/topic/stored/x"}
"""The durable subscriptions; nobody consumes from the second one while the load runs."""
LAST_VALUES = [f"/topic/last/{number}" for number in range(4)]
END = "end-"
"""How bodies begin that the checks after a restart send; everybody acknowledges them."""
AHEAD = 60
"""A publisher sends nothing more to a place where so many messages wait."""
WINDOW = 8
"""How many RECEIPTs a client waits for at most, before it sends more."""


class Trigger:
    """Ends the broker by a signal when so many RECEIPTs have come to all clients together."""

    def __init__(self, pid: int, number: signal.Signals, receipts: int) -> None:
        self._pid = pid
        self._number = number
        self._left = receipts
        self._lock = threading.Lock()

    def count(self) -> None:
        """A RECEIPT has come."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(self._pid, self._number)


class Client(threading.Thread):
    """A session in a thread of its own that works until the broker ends. `failure` is what went wrong."""

    def __init__(self, model: Model, trigger: Trigger, port: int, name: str, random: Random) -> None:
        super().__init__(daemon=True, name=name)
        self.model = model
        self.trigger = trigger
        self.random = random
        self.wire = Wire(port, timeout=60)
        self.wire.connect()
        self.failure: BaseException | None = None
        self._number = 0
        self._receipts: dict[str, Callable[[], None]] = {}

    def run(self) -> None:
        """Works; `failure` says what went wrong."""
        try:
            with contextlib.suppress(OSError):
                while self.step():
                    pass
            self.read_rest()
        except BaseException as failure:
            self.failure = failure
        finally:
            self.wire.discard()

    def step(self) -> bool:
        """Does something; returns whether the connection is still there."""
        raise NotImplementedError

    def receive(self, frame: Frame) -> None:
        """Handles a frame of the broker."""
        assert frame.command == "RECEIPT", f"{self.name} got {frame}"
        self._receipts.pop(frame["receipt-id"])()
        self.trigger.count()

    def read_rest(self) -> None:
        """Reads what had left the broker before its end."""
        with contextlib.suppress(OSError):
            while self.read_one():
                pass

    def read_one(self) -> bool:
        """Handles the next frame, and waits for it; returns whether there is one."""
        while (frame := self.wire._parser.next_frame()) is None:
            if not self.wire.receive_some():
                return False
        self.receive(frame)
        return True

    def read_to(self, window: int) -> bool:
        """Reads until no more than so many RECEIPTs are due; returns whether the connection is still there."""
        while len(self._receipts) > window:
            if not self.read_one():
                return False
        return True

    def receipt(self, then: Callable[[], None]) -> str:
        """The name of a RECEIPT; `then` is called when it has come."""
        self._number += 1
        name = f"{self.name}-{self._number}"
        self._receipts[name] = then
        return name

    def new_message(self, places: list[str], *, is_plain: bool) -> tuple[list[tuple[str, str]], Entry]:
        """A message that the model knows from now on."""
        self._number += 1
        name = f"{self.name}-{self._number}"
        size = self.random.choice([40, 40, 200, 200, 1000, 4000, self.random.randrange(40, 150_000)])
        is_persistent = not is_plain or self.random.random() < 0.95
        entry = Entry(self.name, self._number, size, is_persistent=is_persistent, is_plain=is_plain)
        keys = [(place, name) for place in places]
        self.model.send(keys, entry)
        return keys, entry

    def send_one(self, destination: str, places: list[str]) -> bytes:
        """A SEND by itself, with or without a RECEIPT."""
        keys, entry = self.new_message(places, is_plain=True)
        at = self.model.now()
        wants = self.random.random() < 0.5
        receipt = self.receipt(lambda: self.model.confirm_send(keys, at)) if wants else None
        return self.frame(destination, keys[0][1], entry, receipt=receipt)

    def frame(self, destination: str, name: str, entry: Entry, **headers: frames.HeaderValue) -> bytes:
        """The SEND of a message."""
        pairs = [PERSISTENT] if entry.is_persistent else []
        text = f"{name} ".ljust(entry.size, ".")
        return frames.send_counted(destination, text, *pairs, **headers)

    def transaction(self, acks: dict[str, tuple[str, str]], count: int) -> bytes:
        """A whole transaction: ACKs (by their ids) and `count` SENDs to queues; it may be aborted."""
        self._number += 1
        name = f"t{self._number}"
        parts = [frames.begin(name), *(frames.ack(id=id, transaction=name) for id in acks)]
        if self.random.random() < 0.15:
            parts += [frames.send(self.random.choice(QUEUES), "aborted", PERSISTENT, transaction=name)]
            return b"".join([*parts, frames.abort(name)])
        sends = []
        for queue in self.random.sample(QUEUES, count):
            keys, entry = self.new_message([queue], is_plain=False)
            parts.append(self.frame(queue, keys[0][1], entry, transaction=name))
            sends += keys
        transaction = Transaction(sends, list(acks.values()))
        with self.model.lock:
            self.model.transactions.append(transaction)
            self.model.acknowledge(transaction.acks, transaction)
        wants = self.random.random() < 0.6
        receipt = self.receipt(lambda: self.model.confirm_commit(transaction)) if wants else None
        return b"".join([*parts, frames.commit(name, receipt=receipt)])


class Publisher(Client):
    """Sends to queues, to topics with durable subscriptions, in transactions, and sets the value of its own topic."""

    def __init__(self, model: Model, trigger: Trigger, port: int, name: str, random: Random, topic: str) -> None:
        super().__init__(model, trigger, port, name, random)
        self.topic = topic

    def step(self) -> bool:
        """Sends a few frames in one piece."""
        self.wire.send(b"".join(self.some_frames()))
        return self.read_to(WINDOW)

    def some_frames(self) -> list[bytes]:
        """Frames of one kind."""
        kind, count = self.random.random(), self.random.randrange(1, 6)
        if kind < 0.5:
            queue = self.random.choice(QUEUES)
            if self.model.waiting(queue) < AHEAD:
                return [self.send_one(queue, [queue]) for _ in range(count)]
        elif kind < 0.65:
            if all(self.model.waiting(queue) < AHEAD for queue in QUEUES):
                return [self.transaction({}, count)]
        elif kind < 0.8:
            topic = self.random.choice(list(TOPICS))
            if all(self.model.waiting(name) < AHEAD for name in TOPICS[topic]):
                return [self.send_one(topic, TOPICS[topic]) for _ in range(count)]
        return [self.last_value()]

    def last_value(self) -> bytes:
        """Sets or removes the value of the topic, with a RECEIPT."""
        self._number += 1
        value = f"{self.name}-{self._number}" if self.random.random() < 0.7 else None
        values = self.model.last_values[self.topic]
        values.append((value, False))
        at = len(values) - 1

        def confirm() -> None:
            values[at] = (value, True)

        retain = "remove" if value is None else "set"
        return frames.send_counted(self.topic, value or "", PERSISTENT, retain=retain, receipt=self.receipt(confirm))


class Consumer(Client):
    """Consumes from places in one mode; acknowledges, refuses, and keeps some deliveries."""

    def __init__(self, model: Model, trigger: Trigger, port: int, name: str, random: Random, places: list[str]) -> None:
        super().__init__(model, trigger, port, name, random)
        self.mode = random.choice(["client", "client-individual"])
        self.keeps = random.randrange(8)
        self.places = places
        self.held: dict[str, list[tuple[str, str]]] = {place: [] for place in places}
        """For each place, the ack ids and names of the deliveries that were not acknowledged, in their order."""

    def step(self) -> bool:
        """Subscribes at first; then handles a frame and settles what it may not keep."""
        if self.places:
            place = self.places.pop()
            headers = [("durable", "true")] if place in PATTERNS else []
            destination = PATTERNS.get(place, place)
            self.wire.send(frames.subscribe(destination, place, *headers, ack=self.mode, prefetch_count="20"))
            return True
        if not self.read_one():
            return False
        for place, held in self.held.items():
            if len(held) > self.keeps:
                self.wire.send(self.settle(place, held))
        return self.read_to(WINDOW)

    def receive(self, frame: Frame) -> None:
        """Takes a MESSAGE."""
        if frame.command != "MESSAGE":
            return super().receive(frame)
        place, name = frame["subscription"], frame.text.partition(" ")[0]
        if name.startswith(END) and self.mode == "client-individual":
            return self.wire.send(frames.ack(id=frame["ack"]))
        if name.startswith(END):
            return self.held[place].append((frame["ack"], name))
        self.model.deliver((place, name), frame)
        return self.held[place].append((frame["ack"], name))

    def settle(self, place: str, held: list[tuple[str, str]]) -> bytes:
        """Acknowledges or refuses some of what is held, by itself or in a transaction."""
        if self.mode == "client":
            count = self.random.randrange(1, len(held) + 1)
            covered, last = held[:count], held[count - 1]
            del held[:count]
            return self.settle_one(last[0], [(place, name) for _, name in covered if not name.startswith(END)])
        chosen = self.random.sample(held, self.random.randrange(1, min(4, len(held)) + 1))
        acks = {id: (place, name) for id, name in chosen}
        if self.random.random() < 0.3:
            before = len(self.model.transactions)
            sends = self.random.randrange(3) if self.model.waiting(QUEUES[0]) < AHEAD else 0
            parts = self.transaction(acks, sends)
            if len(self.model.transactions) == before and b"\0ABORT\n" in parts:
                return parts  # they are still held
        else:
            parts = b"".join(self.settle_one(id, [key]) for id, key in acks.items())
        held[:] = [delivery for delivery in held if delivery not in chosen]
        return parts

    def settle_one(self, id: str, covered: list[tuple[str, str]]) -> bytes:
        """An ACK or NACK, with or without a RECEIPT, that covers these messages."""
        wants = self.random.random() < 0.5
        if self.random.random() < 0.1:
            return frames.nack(id=id, receipt=self.receipt(lambda: None) if wants else None)
        self.model.acknowledge(covered)
        receipt = self.receipt(lambda: self.model.confirm_ack(covered)) if wants else None
        return frames.ack(id=id, receipt=receipt)
