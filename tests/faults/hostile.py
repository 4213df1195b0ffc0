"""Clients that mean no good, in tables: what each fills, what it says, and what must be left of it once it has gone.

`endure` lets one `Attack` loose on a broker of its own, beside a bystander who goes on exchanging messages.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tests.faults.probes import SMALL_BUFFER, descriptors, memory_kib
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

MEMORY_LIMIT_MIB = 64
"""`memory_limit` of every broker that is attacked."""
RESIDENT_KIB_MAX = (MEMORY_LIMIT_MIB + 64) << 10
"""What the whole process may hold meanwhile, the interpreter included."""
TURN_BYTES_MAX = 4 << 20
"""A turn encodes 1 MiB for mail and 1 MiB for sockets, and one frame that was begun; bodies here have up to 1 MB."""
TURN_DELIVERIES_MAX = 45_000
"""20,000 for mail and as many for sockets, and the rest of a group."""
TURN_VISITS_MAX = 35_000
"""20,000 that its parts share, 5,000 more for those that come last, and what was begun."""
HELD_BYTES_MAX = 4 << 20
"""What a broker may still count when nobody is left: names that stay resolved, and tables that were large."""
DEAD = "/queue/dlq/>"
"""Where expired and refused messages of queues go, which stay for whoever looks into it."""
PUSH_S = 15.0
"""How long an attack may go on pushing."""
STALL_S = 0.5
"""An attacker whose bytes nobody takes for this long has said what it can."""
LONG = "n" * 8000
"""The tail of a name of maximum length: a header line may have 10 KiB."""

LOGIN = frames.connect(heart_beat="0,0")


@dataclass(frozen=True)
class Attack:
    """What one kind of client fills, and how."""

    fills: str
    """The table, list, timer or counter."""
    says: Callable[[int], Sequence[bytes]]
    """What connection number N says, in pieces of any size; nothing of what it is told is ever read."""
    connections: int = 1
    rounds: int = 1
    """How often all of them come and go."""
    settings: Mapping[str, object] = field(default_factory=dict)
    reads: bool = False
    """Whether it reads and forgets what it is told."""
    leaves_by_reset: bool = True
    hold_s: float = 0.3
    """How long they stay once they have said it all."""

    def __str__(self) -> str:
        return self.fills


class Crowd:
    """Many sockets of one attack, served by one selector."""

    def __init__(self, broker: BrokerProcess, attack: Attack) -> None:
        self.attack = attack
        self.unsaid: dict[socket.socket, list[memoryview]] = {}
        self.ready = selectors.DefaultSelector()
        for number in range(attack.connections):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            sock.connect(("127.0.0.1", broker.port))
            sock.setblocking(False)
            self.unsaid[sock] = [memoryview(piece) for piece in attack.says(number)]
            self.ready.register(sock, selectors.EVENT_WRITE | (selectors.EVENT_READ if attack.reads else 0))

    def push(self) -> None:
        """Says all there is to say, as far as the broker takes it."""
        deadline = time.monotonic() + PUSH_S
        quiet_since = time.monotonic()
        while any(self.unsaid.values()) and time.monotonic() < deadline:
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
            pieces = self.unsaid[sock]
            if events & selectors.EVENT_WRITE and pieces:
                taken = sock.send(pieces[0])
                pieces[0] = pieces[0][taken:]
                if not pieces[0]:
                    pieces.pop(0)
                moved = True
        except BlockingIOError:
            return False
        except OSError:
            self.unsaid[sock] = []  # it was sent away, as it deserves
        if not self.unsaid[sock]:
            self.ready.unregister(sock)
            if self.attack.reads:
                with contextlib.suppress(OSError):
                    self.ready.register(sock, selectors.EVENT_READ)
        return moved

    def leave(self) -> None:
        """All go, with a reset or in order."""
        for sock in self.unsaid:
            if self.attack.leaves_by_reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.ready.close()


class Bystander(threading.Thread):
    """Exchanges small messages with itself by a topic or a queue, and notes the longest time that one took."""

    def __init__(self, broker: BrokerProcess, destination: str) -> None:
        super().__init__(daemon=True)
        self.destination = destination
        self.wire = Wire(broker.port, timeout=40)
        self.wire.connect(heart_beat="0,0")
        # A topic's subscription that acknowledges would have a queue of its own.
        self.ack = "client-individual" if destination.startswith("/queue/") else "auto"
        self.wire.subscribe(destination, ack=self.ack)
        self.over = threading.Event()
        self.worst_s = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Sends and receives; a failure is raised again by `end`."""
        try:
            while not self.over.wait(0.002):
                began = time.monotonic()
                self.wire.send(frames.send(self.destination, "tick"))
                message = self.wire.expect_message("tick")
                if self.ack != "auto":
                    self.wire.send(frames.ack(id=message["ack"]))
                self.worst_s = max(self.worst_s, time.monotonic() - began)
        except BaseException as failure:
            self.failure = failure

    def end(self) -> float:
        """The worst silence, in seconds."""
        self.over.set()
        self.join(45)
        self.wire.discard()
        if self.failure is not None:
            raise self.failure
        return self.worst_s


def ask(wire: Wire, query: str) -> Any:
    """The answer to a query of DIAG."""
    wire.send(b"DIAG\n\n" + query.encode() + b"\0")
    return json.loads(wire.expect("DIAG").body)


def most(shards: Sequence[Mapping[str, int]], name: str) -> int:
    """The greatest of all shards."""
    return max(shard[name] for shard in shards)


def total(shards: Sequence[Mapping[str, int]], name: str) -> int:
    """The sum over all shards."""
    return sum(shard[name] for shard in shards)


@contextlib.contextmanager
def observed(broker: BrokerProcess) -> Iterator[Wire]:
    """A session that asks, and reads nothing else."""
    with Wire(broker.port, timeout=40) as wire:
        wire.connect(heart_beat="0,0")
        yield wire


def endure(start_broker: StartBroker, attack: Attack) -> None:
    """Lets an attack loose, and checks what it cost while it lasted and what is left of it afterwards."""
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
        timers = total(ask(observer, "shards"), "timers")
        for bystander in bystanders:
            bystander.start()
        for _ in range(attack.rounds):
            crowd = Crowd(broker, attack)
            crowd.push()
            time.sleep(attack.hold_s)
            held = ask(observer, "memory")["held_bytes"]
            crowd.leave()
        topic_ms, queue_ms = (bystander.end() * 1000 for bystander in bystanders)
        peak_kib = memory_kib(broker.pid, "VmHWM")
        print(f"\n{attack.fills}: silence of a topic {topic_ms:.0f} ms, of a queue {queue_ms:.0f} ms,", end=" ")
        print(f"peak {peak_kib >> 10} MiB, held {held >> 10} KiB,", end=" ")
        assert peak_kib <= RESIDENT_KIB_MAX, f"{attack.fills}: peak {peak_kib >> 10} MiB"
        eventually(lambda: total(ask(observer, "shards"), "connections") == 1, "the attackers' connections end", 20)
        eventually(lambda: descriptors(broker.pid) == before - len(bystanders), "their descriptors are given back", 20)
        with tidying(broker):
            eventually(lambda: ask(observer, "memory")["queue_bytes"] == 0, "what was left in queues is taken", 40)
        deadline = time.monotonic() + 40
        while left := left_over(observer, timers):
            assert time.monotonic() < deadline, f"{attack.fills}: left behind {left}"
            time.sleep(0.05)
        check_turns(ask(observer, "shards"))


def check_turns(shards: Sequence[Mapping[str, int]]) -> None:
    """No turn did too much, the one in which they went included."""
    turn = {name: most(shards, name) for name in shards[0] if name.startswith("max_turn_")}
    print(turn, end=" ")
    assert turn["max_turn_bytes"] <= TURN_BYTES_MAX, turn
    assert turn["max_turn_deliveries"] <= TURN_DELIVERIES_MAX, turn
    assert turn["max_turn_visits"] <= TURN_VISITS_MAX, turn


@contextlib.contextmanager
def tidying(broker: BrokerProcess) -> Iterator[None]:
    """Somebody takes whatever is left in queues, meanwhile."""
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


def left_over(observer: Wire, timers: int) -> dict[str, int]:
    """What a broker holds that it did not before anybody came."""
    shards, memory = ask(observer, "shards"), ask(observer, "memory")
    left = {name: total(shards, name) for name in ("subscriptions", "queues", "mailbox_frames", "timers")}
    left |= {name: memory[name] for name in ("outbox_bytes", "input_bytes", "queue_bytes", "held_bytes")}
    left["unanswered"] = total(shards, "unanswered") - 1  # this very question waits where there is another shard
    left["timers"] -= timers
    return {name: count for name, count in left.items() if count > (HELD_BYTES_MAX if name == "held_bytes" else 0)}
