"""Hostile clients, as tables of attacks: what each one fills, which frames it sends, and what may remain afterwards.

`run_attack` runs one `Attack` against a broker of its own while bystanders keep exchanging messages.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.diagnostics import answer
from tests.support.probes import SMALL_BUFFER, descriptors, memory_kib
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

MEMORY_LIMIT_MIB = 64
"""`memory_limit` of every broker that is attacked."""
RESIDENT_KIB_MAX = (MEMORY_LIMIT_MIB + 64) << 10
"""The largest that the whole process may hold during an attack, the Python interpreter included."""
TURN_BYTES_MAX = 4 << 20
"""A turn encodes 1 MiB for mail, 1 MiB for sockets, and the frame that it has begun; bodies here have up to 1 MB."""
TURN_DELIVERIES_MAX = 45_000
"""A turn makes 20,000 deliveries for mail and as many for sockets, and finishes the current group."""
TURN_VISITS_MAX = 35_000
"""A turn makes 20,000 visits that its parts share, 5,000 more for the last parts, and finishes what it has begun."""
HELD_BYTES_MAX = 4 << 20
"""The largest that a broker may still count after all clients have left: resolved names, and tables that were large."""
DEAD = "/queue/dlq/>"
"""The dead-letter queues, where expired and negatively acknowledged messages of queues stay until they are consumed."""
WRITE_S = 15.0
"""The time for which an attack may write."""
STALL_S = 0.5
"""If no bytes are taken from the attackers for this long, they stop writing."""
LONG = "n" * 8000
"""The tail of a name of maximum length: a header line may have 10 KiB."""

LOGIN = frames.connect(heart_beat="0,0")


@dataclass(frozen=True)
class Attack:
    """What one kind of client fills, and how."""

    fills: str
    """The table, list, timer or counter."""
    sends: Callable[[int], Sequence[bytes]]
    """The bytes that connection number N sends, in pieces of any size."""
    connections: int = 1
    rounds: int = 1
    """How often all connections are opened and closed."""
    settings: Mapping[str, object] = field(default_factory=dict)
    reads: bool = False
    """Whether it reads and discards what it is sent; otherwise it never reads."""
    leaves_by_reset: bool = True
    hold_s: float = 0.3
    """How long the connections stay open after all was sent."""
    durables: Callable[[int], Sequence[str]] = lambda number: []
    """The ids of the durable subscriptions to `/topic/kept` that connection N begins and ends. It may leave before the
    broker has read that it ends them; then the test does."""

    def __str__(self) -> str:
        return self.fills


class Attackers:
    """Many sockets of one attack, served by one selector."""

    def __init__(self, broker: BrokerProcess, attack: Attack) -> None:
        self.attack = attack
        self.unwritten: dict[socket.socket, list[memoryview]] = {}
        self.ready = selectors.DefaultSelector()
        for number in range(attack.connections):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            sock.connect(("127.0.0.1", broker.port))
            sock.setblocking(False)
            self.unwritten[sock] = [memoryview(piece) for piece in attack.sends(number)]
            self.ready.register(sock, selectors.EVENT_WRITE | (selectors.EVENT_READ if attack.reads else 0))

    def write(self) -> None:
        """Writes all that the attack sends, as far as the broker takes it."""
        deadline = time.monotonic() + WRITE_S
        quiet_since = time.monotonic()
        while any(self.unwritten.values()) and time.monotonic() < deadline:
            for key, events in self.ready.select(0.05):
                sock = cast(socket.socket, key.fileobj)
                if self._serve(sock, events):
                    quiet_since = time.monotonic()
            if time.monotonic() - quiet_since > STALL_S:
                return

    def _serve(self, sock: socket.socket, events: int) -> bool:
        moved = False
        try:
            if events & selectors.EVENT_READ:
                moved = bool(sock.recv(1 << 16))
            pieces = self.unwritten[sock]
            if events & selectors.EVENT_WRITE and pieces:
                taken = sock.send(pieces[0])
                pieces[0] = pieces[0][taken:]
                if not pieces[0]:
                    pieces.pop(0)
                moved = True
        except BlockingIOError:
            return False
        except OSError:
            self.unwritten[sock] = []  # the broker has closed the connection
        if not self.unwritten[sock]:
            self.ready.unregister(sock)
            if self.attack.reads:
                with contextlib.suppress(OSError):
                    self.ready.register(sock, selectors.EVENT_READ)
        return moved

    def leave(self) -> None:
        """Closes all connections, by a reset or in order."""
        for sock in self.unwritten:
            if self.attack.leaves_by_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.ready.close()


class Bystander(threading.Thread):
    """Exchanges small messages with itself over a topic or a queue, and records the longest round trip."""

    def __init__(self, broker: BrokerProcess, destination: str) -> None:
        super().__init__(daemon=True)
        self.destination = destination
        self.wire = Wire(broker.port, timeout=40)
        self.wire.connect(heart_beat="0,0")
        # With acknowledgements, the subscription to a topic would have a private queue.
        self.ack = "client-individual" if destination.startswith("/queue/") else "auto"
        self.wire.subscribe(destination, ack=self.ack)
        self.over = threading.Event()
        self.longest_s = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Sends and receives; `end` raises a failure again."""
        try:
            while not self.over.wait(0.002):
                began = time.monotonic()
                self.wire.send(frames.send(self.destination, "tick"))
                message = self.wire.expect_message("tick")
                if self.ack != "auto":
                    self.wire.send(frames.ack(id=message["ack"]))
                self.longest_s = max(self.longest_s, time.monotonic() - began)
        except BaseException as failure:
            self.failure = failure

    def end(self) -> float:
        """Stops, and returns the longest round trip in seconds."""
        self.over.set()
        self.join(45)
        self.wire.discard()
        if self.failure is not None:
            raise self.failure
        return self.longest_s


def largest(shards: Sequence[Mapping[str, int]], name: str) -> int:
    """Returns the largest value over all shards."""
    return max(shard[name] for shard in shards)


def total(shards: Sequence[Mapping[str, int]], name: str) -> int:
    """Returns the sum over all shards."""
    return sum(shard[name] for shard in shards)


@contextlib.contextmanager
def observed(broker: BrokerProcess) -> Iterator[Wire]:
    """Yields a session that only sends queries."""
    with Wire(broker.port, timeout=40) as wire:
        wire.connect(heart_beat="0,0")
        yield wire


def run_attack(start_broker: StartBroker, attack: Attack) -> None:
    """Runs an attack, and checks what it costs while it runs and what remains afterwards."""
    broker = start_broker(
        memory_limit=f"{MEMORY_LIMIT_MIB}MiB",
        heartbeat="0,0",
        login_timeout="1s",
        queue_idle_expiry="1s",
        **attack.settings,
    )
    with observed(broker) as observer:
        bystanders = [Bystander(broker, name) for name in ("/topic/bystander", "/queue/bystander")]
        before = descriptors(broker.pid)
        timers = total(answer(observer, "shards"), "timers")
        for bystander in bystanders:
            bystander.start()
        for _ in range(attack.rounds):
            attackers = Attackers(broker, attack)
            attackers.write()
            time.sleep(attack.hold_s)
            held = answer(observer, "memory")["held_bytes"]
            attackers.leave()
        topic_ms, queue_ms = (bystander.end() * 1000 for bystander in bystanders)
        peak_kib = memory_kib(broker.pid, "VmHWM")
        print(f"\n{attack.fills}: longest round trip by topic {topic_ms:.0f} ms, by queue {queue_ms:.0f} ms,", end=" ")
        print(f"peak {peak_kib >> 10} MiB, held {held >> 10} KiB,", end=" ")
        assert peak_kib <= RESIDENT_KIB_MAX, f"{attack.fills}: peak {peak_kib >> 10} MiB"
        eventually(lambda: total(answer(observer, "shards"), "connections") == 1, "the attackers' connections end", 20)
        eventually(lambda: descriptors(broker.pid) == before - len(bystanders), "their descriptors are closed", 20)
        end_durables(broker, [name for number in range(attack.connections) for name in attack.durables(number)])
        with consumed_queues(broker):
            eventually(lambda: answer(observer, "memory")["queue_bytes"] == 0, "the queues become empty", 40)
        deadline = time.monotonic() + 40
        while left := remainder(observer, timers):
            assert time.monotonic() < deadline, f"{attack.fills}: still held: {left}"
            time.sleep(0.05)
        check_turns(answer(observer, "shards"))


def check_turns(shards: Sequence[Mapping[str, int]]) -> None:
    """No turn did too much work, not even the one that closed the attackers' connections."""
    turn = {name: largest(shards, name) for name in shards[0] if name.startswith("max_turn_")}
    print(turn, end=" ")
    assert turn["max_turn_bytes"] <= TURN_BYTES_MAX, turn
    assert turn["max_turn_deliveries"] <= TURN_DELIVERIES_MAX, turn
    assert turn["max_turn_visits"] <= TURN_VISITS_MAX, turn


def end_durables(broker: BrokerProcess, ids: Sequence[str]) -> None:
    """Ends durable subscriptions, whether they exist or not."""
    with Wire(broker.port, timeout=40) as wire:
        wire.connect(heart_beat="0,0")
        for at in ids:
            wire.send(
                frames.subscribe("/topic/kept", at, durable="true", ack="client", prefetch_count=1),
                frames.unsubscribe(at, durable="true", receipt="ended"),
            )
            while wire.recv_frame().command != "RECEIPT":
                pass


@contextlib.contextmanager
def consumed_queues(broker: BrokerProcess) -> Iterator[None]:
    """A consumer takes all messages from the queues meanwhile."""
    with Wire(broker.port, timeout=40) as wire:
        wire.connect(heart_beat="0,0")
        wire.send(*(frames.subscribe(pattern, pattern) for pattern in ("/queue/>", DEAD)))

        def take() -> None:
            with contextlib.suppress(OSError):
                while wire.sock.recv(1 << 18):
                    pass

        wire.sock.settimeout(60)
        taker = threading.Thread(target=take, daemon=True)
        taker.start()
        yield
        wire.sock.shutdown(socket.SHUT_RDWR)
        taker.join()


def remainder(observer: Wire, timers: int) -> dict[str, int]:
    """Returns what the broker holds that it did not hold before the attack."""
    shards, memory = answer(observer, "shards"), answer(observer, "memory")
    left = {name: total(shards, name) for name in ("subscriptions", "queues", "mailbox_frames", "timers")}
    left |= {name: memory[name] for name in ("outbox_bytes", "input_bytes", "queue_bytes", "held_bytes")}
    left["unanswered"] = total(shards, "unanswered") - 1  # this query itself waits if there is another shard
    left["timers"] -= timers
    return {name: count for name, count in left.items() if count > (HELD_BYTES_MAX if name == "held_bytes" else 0)}
