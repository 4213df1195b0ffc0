"""A small fan-out generator for Redis, NATS and MQTT: publishes under a window and counts deliveries in bytes.

All messages have the same length, so the number of bytes gives the number of messages. Nothing else is checked, neither
order nor content. `python -m bench.peers.bytecount PROTOCOL HOST:PORT PID …`, run from the top of the source tree,
makes one repetition and prints its result as one line of JSON, like the load generator.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.peers.latency import WindowLatency

from stompica.bench import procfs

STALL_S = 20.0
WARM_UP_S = 0.3
RUN_MAX_S = 12.0
READ_BYTES = 1 << 20
PORTION_BYTES = 256 * 1024
TIMED = 8
"""Latencies are counted for one subscriber in this many: counting all would slow this generator down."""


@dataclass(frozen=True)
class Protocol:
    """What is written, and what is expected."""

    hello: bytes
    """Written first."""
    greeting: Callable[[bytes], bool]
    """Whether the bytes so far are the complete answer to `hello`, or to nothing if the server speaks first."""
    subscribe: Callable[[str], bytes]
    subscribed: Callable[[bytes], bool]
    publish: Callable[[str, bytes], bytes]
    message: Callable[[str, bytes], bytes]
    """What a subscriber receives; only its length is used."""
    ping: bytes = b""
    """What a server sends in between on its own."""
    pong: bytes = b""


def _bulk(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _packet(kind: int, payload: bytes) -> bytes:
    length, digits = len(payload), b""
    while True:
        digits += bytes([length % 128 | (128 if length >= 128 else 0)])
        length //= 128
        if not length:
            return bytes([kind]) + digits + payload


def _text(text: str) -> bytes:
    return struct.pack("!H", len(text)) + text.encode()


def _mqtt_publish(topic: str, body: bytes) -> bytes:
    return _packet(0x30, _text(topic) + body)


PROTOCOLS = {
    "redis": Protocol(
        b"",
        lambda _: True,
        lambda topic: _bulk(b"SUBSCRIBE", topic.encode()),
        lambda came: came.endswith(b":1\r\n"),
        lambda topic, body: _bulk(b"PUBLISH", topic.encode(), body),
        lambda topic, body: _bulk(b"message", topic.encode(), body),
    ),
    "nats": Protocol(
        b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n',
        lambda came: came.endswith(b"PONG\r\n"),
        lambda topic: b"SUB %s 1\r\nPING\r\n" % topic.encode(),
        lambda came: came.endswith(b"PONG\r\n"),
        lambda topic, body: b"PUB %s %d\r\n%s\r\n" % (topic.encode(), len(body), body),
        lambda topic, body: b"MSG %s 1 %d\r\n%s\r\n" % (topic.encode(), len(body), body),
        b"PING\r\n",
        b"PONG\r\n",
    ),
    "mqtt": Protocol(
        _packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text("")),
        lambda came: came == b"\x20\x02\x00\x00",
        lambda topic: _packet(0x82, b"\x00\x01" + _text(topic) + b"\x00"),
        lambda came: came == b"\x90\x03\x00\x01\x00",
        _mqtt_publish,
        _mqtt_publish,
    ),
}
"""Redis (RESP 2), NATS and MQTT 3.1.1."""


class Fault(Exception):
    """The repetition failed."""


@dataclass
class Lane:
    """One subscriber."""

    socket: socket.socket
    publisher: int
    message_bytes: int
    timed: bool
    """Whether its latencies are counted."""
    received: int = 0
    """Bytes of messages."""
    tail: bytes = b""
    """The last bytes that arrived, which may be the start of a ping."""


@dataclass
class Publisher:
    """One publisher: the bytes of a message, and how many messages to write."""

    socket: socket.socket
    frame: bytes
    sent: int = 0
    goal: int = 0
    pending: memoryview = field(default_factory=lambda: memoryview(b""))


class Load:
    """All connections, and rounds over them."""

    def __init__(self, protocol: Protocol, address: tuple[str, int], options: argparse.Namespace) -> None:
        body = b"x" * options.body
        self._protocol = protocol
        self._window = options.window
        self._buffer = bytearray(READ_BYTES)
        self._poll = select.epoll()
        self.lanes: dict[int, Lane] = {}
        self.publishers: list[Publisher] = []
        self.series: list[dict[str, int]] = []
        self.latency = WindowLatency(options.publishers)
        for number in range(options.publishers):
            topic = f"bench-{number}"
            for place in range(options.connections):
                stream = _open(protocol, address)
                stream.sendall(protocol.subscribe(topic))
                _await(stream, protocol.subscribed)
                length = len(protocol.message(topic, body))
                self.lanes[stream.fileno()] = Lane(stream, number, length, timed=place % TIMED == 0)
            self.publishers.append(Publisher(_open(protocol, address), protocol.publish(topic, body)))
        for stream in [lane.socket for lane in self.lanes.values()] + [one.socket for one in self.publishers]:
            stream.setblocking(False)
            self._poll.register(stream, select.EPOLLIN)

    def close(self) -> None:
        """Closes all connections."""
        for stream in [lane.socket for lane in self.lanes.values()] + [one.socket for one in self.publishers]:
            stream.close()
        self._poll.close()

    @property
    def deliveries(self) -> int:
        """Messages received, over all subscribers."""
        return sum(lane.received // lane.message_bytes for lane in self.lanes.values())

    @property
    def messages(self) -> int:
        """Messages sent."""
        return sum(publisher.sent for publisher in self.publishers)

    def round(self, messages: int, tick: Callable[[], None]) -> None:
        """Sends this many messages from each publisher under the window, until every subscriber has them."""
        for publisher in self.publishers:
            publisher.goal = publisher.sent + messages
        moved, before = time.monotonic(), -1
        while not self._done():
            busy = [self._push(number) for number in range(len(self.publishers))]
            for descriptor, _ in self._poll.poll(0 if any(busy) else 0.05):
                self._read(descriptor)
            tick()
            now, state = time.monotonic(), self.deliveries + self.messages
            if state != before:
                moved, before = now, state
            elif now - moved > STALL_S:
                raise Fault(f"stalled: {self.messages} messages sent, {self.deliveries} deliveries arrived")

    def _slowest(self, publisher: int) -> int:
        lanes = [lane for lane in self.lanes.values() if lane.publisher == publisher]
        return min((lane.received // lane.message_bytes for lane in lanes), default=self.publishers[publisher].sent)

    def _done(self) -> bool:
        return all(
            one.sent == one.goal and not one.pending and self._slowest(number) >= one.goal
            for number, one in enumerate(self.publishers)
        )

    def _push(self, number: int) -> bool:
        publisher = self.publishers[number]
        if not publisher.pending:
            allowed = min(self._window - publisher.sent + self._slowest(number), publisher.goal - publisher.sent)
            # Small portions cost a system call each: wait for an eighth of the window.
            if allowed <= 0 or (allowed < self._window // 8 and allowed < publisher.goal - publisher.sent):
                return False
            count = max(1, min(allowed, PORTION_BYTES // len(publisher.frame)))
            self.latency.writing(number, publisher.sent + count, time.monotonic_ns())
            publisher.pending = memoryview(publisher.frame * count)
            publisher.sent += count
        try:
            publisher.pending = publisher.pending[publisher.socket.send(publisher.pending) :]
        except BlockingIOError:
            return False
        return True

    def _read(self, descriptor: int) -> None:
        lane = self.lanes.get(descriptor)
        stream = (
            lane.socket if lane else next(one.socket for one in self.publishers if one.socket.fileno() == descriptor)
        )
        try:
            size = stream.recv_into(self._buffer)
        except BlockingIOError:
            return
        if size == 0:
            raise Fault("closed by the peer")
        if lane is not None:
            before = lane.received // lane.message_bytes
            lane.received += size - self._pings(lane, size)
            if lane.timed:
                after = lane.received // lane.message_bytes
                self.latency.arrived(lane.publisher, before, after, time.monotonic_ns())
            if lane.received > self.publishers[lane.publisher].sent * lane.message_bytes:
                raise Fault("more bytes arrived than were sent: they are doubled, or not messages")
        elif self._protocol.ping and self._buffer.startswith(self._protocol.ping):
            stream.send(self._protocol.pong)

    def _pings(self, lane: Lane, size: int) -> int:
        """Bytes of pings that ended in what was just read; the pings are answered. No message looks like a ping."""
        ping = self._protocol.ping
        if not ping:
            return 0
        edge = len(ping) - 1
        count = self._buffer.count(ping, 0, size) + (lane.tail + self._buffer[: min(edge, size)]).count(ping)
        lane.tail = (lane.tail + self._buffer[max(0, size - edge) : size])[-edge:]
        for _ in range(count):
            lane.socket.send(self._protocol.pong)
        return count * len(ping)


def _open(protocol: Protocol, address: tuple[str, int]) -> socket.socket:
    stream = socket.create_connection(address, STALL_S)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(protocol.hello)
    _await(stream, protocol.greeting)
    return stream


def _await(stream: socket.socket, complete: Callable[[bytes], bool]) -> None:
    came = b""
    while not complete(came):
        received = stream.recv(65536)
        if not received:
            raise Fault(f"closed by the peer after {came[:200]!r}")
        came += received


def measure(load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Runs rounds until the target has used the requested CPU; returns the result."""
    begun = time.monotonic()
    load.round(options.messages, lambda: None)
    while options.min_cpu > 0 and time.monotonic() - begun < WARM_UP_S:
        load.round(options.messages, lambda: None)
    begun, begun_us = time.monotonic(), time.time_ns() // 1000
    before, own_before = procfs.usage(options.pid), time.process_time()
    sent, delivered, rounds = load.messages, load.deliveries, 0
    load.latency.forget()
    last = [begun, sent, delivered]

    def tick(at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - last[0] >= options.series / 1000:
            messages, deliveries = load.messages, load.deliveries
            length = round((now - last[0]) * 1e6)
            row = {"at_us": round((last[0] - begun) * 1e6), "duration_us": length}
            load.latency.end_interval(**row)
            load.series.append({**row, "messages": messages - int(last[1]), "deliveries": deliveries - int(last[2])})
            last[:] = [now, messages, deliveries]

    used_s = 0.0
    while rounds == 0 or (used_s < options.min_cpu and time.monotonic() - begun < RUN_MAX_S):
        load.round(options.messages, tick)
        rounds += 1
        after = procfs.usage(options.pid)
        used_s = (after.cpu_us - before.cpu_us) / 1e6 if before and after else time.monotonic() - begun
    tick(at_once=True)
    seconds, own_s = time.monotonic() - begun, time.process_time() - own_before
    deliveries = load.deliveries - delivered
    return {
        "fault": None,
        "begun_unix_us": begun_us,
        "seconds": seconds,
        "rounds": rounds,
        "messages": load.messages - sent,
        "deliveries": deliveries,
        "deliveries_per_s": deliveries / seconds,
        "target_cpu_s": used_s if before else None,
        "cpu_us_per_delivery": used_s * 1e6 / max(deliveries, 1) if before else None,
        "generator_cpu_s": own_s,
        "generator_share": own_s / seconds,
        "series": [row for row in load.series if row["duration_us"] > 0],
        "window_latency": load.latency.result(),
    }


def main(arguments: Sequence[str]) -> int:
    """Makes one repetition and prints its result; exit status 1 if it failed."""
    parser = argparse.ArgumentParser("bench.peers.bytecount")
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("address")
    parser.add_argument("pid", type=int)
    for name in ("publishers", "connections", "body", "messages", "window", "series"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--min-cpu", type=float, default=1.0)
    options = parser.parse_args(arguments)
    host, _, port = options.address.rpartition(":")
    try:
        with contextlib.closing(Load(PROTOCOLS[options.protocol], (host, int(port)), options)) as load:
            run = measure(load, options)
    except (Fault, OSError) as error:
        run = {"fault": str(error)}
    print(json.dumps({"peak_rss_bytes": None, **run}))
    return 1 if run["fault"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
