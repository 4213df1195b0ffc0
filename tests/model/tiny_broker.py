"""A broker of work queues in a few lines of Python, correct or with a chosen fault.

It shows that the model test passes a correct broker and fails a faulty one. It has one thread, serves TCP only, and
sends only the two ERRORs that the runner provokes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field

from tests.model.rules import Rules, dead_letter_queue, matches
from tests.support import frames

FAULTS = {
    "loses": "the messages of a lost consumer are dropped",
    "doubles": "an ACK of a connection that is then lost has no effect",
    "reorders": "a requeued message goes to the end of the queue",
    "shuffles": "a new message is put ahead of the last one",
    "overfills": "a consumer gets one delivery more than its prefetch",
    "half commits": "COMMIT drops its last message",
    "forgets acks": "COMMIT ignores its ACKs",
    "keeps aborted": "ABORT sends the messages of the transaction",
    "miscounts": "delivery-count is not increased when a consumer is lost",
    "hurries": "there is no delay after NACK",
    "gives up early": "a message becomes a dead letter one failure too early",
    "gives up late": "a message becomes a dead letter one failure too late",
    "shares": "a held message is delivered to a second consumer",
    "stalls": "an ACK frees no prefetch",
    "cumulates": "ACK in client-individual mode covers the earlier deliveries",
}
"""The faults that can be chosen."""


@dataclass(eq=False)
class QueuedMessage:
    body: str
    queue: str
    place: float
    headers: list[tuple[str, str]]
    limit: int
    reason: str
    deliveries: int = 0
    failures: int = 0
    due: float = 0.0


@dataclass(eq=False)
class Peer:
    sock: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    version: str = "1.0"
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    issued: dict[str, Held] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    transactions: dict[str, list[dict[str, str]]] = field(default_factory=dict)


@dataclass(eq=False)
class Subscription:
    peer: Peer
    id: str
    pattern: str
    mode: str
    prefetch: int
    held: list[Held] = field(default_factory=list)


@dataclass(eq=False)
class Held:
    message: QueuedMessage
    consumer: Subscription
    id: str
    since: float
    transaction: bool = False


class TinyBroker(contextlib.AbstractContextManager["TinyBroker"]):
    """Serves on `port` until the context ends. `fault` is one of `FAULTS`, or empty."""

    def __init__(self, rules: Rules, fault: str = "") -> None:
        assert not fault or fault in FAULTS
        self.rules = rules
        self.fault = fault
        self._waiting: list[QueuedMessage] = []
        self._subscriptions: list[Subscription] = []
        self._places = 0.0
        self._ids = 0
        self._turn = 0
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.port: int = self._listener.getsockname()[1]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    # -- frames ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.002):
                if key.data is None:
                    sock, _ = self._listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._selector.register(sock, selectors.EVENT_READ, Peer(sock))
                else:
                    self._read(key.data)
            self._time_out()
            self._dispatch()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _read(self, peer: Peer) -> None:
        try:
            received = peer.sock.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        peer.buffer += received
        while peer.sock.fileno() >= 0 and (end := peer.buffer.find(b"\0")) >= 0:
            head, _, body = bytes(peer.buffer[:end]).decode().lstrip("\n").partition("\n\n")
            del peer.buffer[: end + 1]
            command, *lines = head.split("\n")
            headers = dict(line.split(":", 1) for line in reversed(lines))
            self._execute(peer, command, headers | {"": body})
        if not received:
            self._lose(peer)

    def _write(self, peer: Peer, command: str, body: str = "", **headers: str) -> None:
        with contextlib.suppress(OSError):
            peer.sock.sendall(frames.frame(command, *headers.items(), body=body))

    def _execute(self, peer: Peer, command: str, headers: dict[str, str]) -> None:
        if command == "CONNECT":
            peer.version = headers.get("accept-version", "1.0")
            self._write(peer, "CONNECTED", version=peer.version)
            return
        try:
            getattr(self, f"_{command.lower()}")(peer, headers)
        except KeyError as error:
            refused = {"code": str(error.args[0]), "receipt-id": headers["receipt"]}
            self._write(peer, "ERROR", **refused)
            self._lose(peer)
            return
        if "receipt" in headers:
            self._write(peer, "RECEIPT", **{"receipt-id": headers["receipt"]})
        if command == "DISCONNECT":
            self._lose(peer)

    def _disconnect(self, peer: Peer, headers: dict[str, str]) -> None:
        pass

    def _subscribe(self, peer: Peer, headers: dict[str, str]) -> None:
        headers = {"ack": "auto", **headers}
        names = ("prefetch-count", "activemq.prefetchSize", "prefetch")
        prefetch = next((int(headers[name]) for name in names if name in headers), 1000)
        subscription = Subscription(peer, headers["id"], headers["destination"], headers["ack"], prefetch)
        peer.subscriptions[subscription.id] = subscription
        self._subscriptions.append(subscription)

    def _unsubscribe(self, peer: Peer, headers: dict[str, str]) -> None:
        self._end(peer.subscriptions.pop(headers["id"]))

    def _begin(self, peer: Peer, headers: dict[str, str]) -> None:
        peer.transactions[headers["transaction"]] = []

    def _abort(self, peer: Peer, headers: dict[str, str]) -> None:
        for each in peer.transactions.pop(headers["transaction"]):
            if "destination" not in each:
                for held in self._covered(peer, each):
                    held.transaction = False
            elif self.fault == "keeps aborted":
                self._enqueue(each)

    def _send(self, peer: Peer, headers: dict[str, str]) -> None:
        if "transaction" in headers:
            peer.transactions[headers["transaction"]].append(headers)
        else:
            self._enqueue(headers)

    def _ack(self, peer: Peer, headers: dict[str, str]) -> None:
        self._settle(peer, headers, "ack")

    def _nack(self, peer: Peer, headers: dict[str, str]) -> None:
        self._settle(peer, headers, "nack")

    def _settle(self, peer: Peer, headers: dict[str, str], kind: str) -> None:
        id = self._id(peer, headers)
        if id in peer.acknowledged:
            raise KeyError("E-ACK-UNKNOWN")
        if "transaction" in headers:
            rows = [each for each in self._covered(peer, headers) if not each.transaction]
            row = {**headers, "kind": kind, "rows": ",".join(each.id for each in rows)}
            peer.transactions[headers["transaction"]].append(row)
            for held in rows:
                held.transaction = True
            return
        for held in self._covered(peer, headers):
            if not held.transaction:
                self._settled(peer, held, kind)

    def _commit(self, peer: Peer, headers: dict[str, str]) -> None:
        rows = peer.transactions.pop(headers["transaction"])
        settled = [(id, row["kind"]) for row in rows if "kind" in row for id in row["rows"].split(",") if id]
        if any(id not in peer.issued for id, _ in settled):
            raise KeyError("E-TX-LOST")
        sends = [row for row in rows if "destination" in row]
        for row in sends[:-1] if self.fault == "half commits" else sends:
            self._enqueue(row)
        for id, kind in settled:
            peer.issued[id].transaction = False
            if self.fault != "forgets acks":
                self._settled(peer, peer.issued[id], kind)

    # -- queues ------------------------------------------------------------------------------------------------

    def _enqueue(self, headers: dict[str, str]) -> None:
        own = ("destination", "receipt", "transaction", "content-length", "")
        passed = [(name, value) for name, value in headers.items() if name not in own]
        limit, reason = self.rules.max_deliveries, "max-deliveries"
        if int(headers.get("max-exceptions", limit)) < limit:
            limit, reason = int(headers["max-exceptions"]), "max-exceptions"
        self._places += 1
        place = self._places - 1.5 if self.fault == "shuffles" and self._places % 2 else self._places
        self._waiting.append(QueuedMessage(headers[""], headers["destination"], place, passed, limit, reason))

    def _id(self, peer: Peer, headers: dict[str, str]) -> str:
        if peer.version == "1.1":
            return headers["subscription"] + "/" + headers["message-id"]
        return headers["id" if peer.version == "1.2" else "message-id"]

    def _covered(self, peer: Peer, headers: dict[str, str]) -> list[Held]:
        held = peer.issued.get(self._id(peer, headers))
        if held is None:
            return []
        row = held.consumer.held
        cumulative = held.consumer.mode == "client" or self.fault == "cumulates"
        return row[: row.index(held) + 1] if cumulative else [held]

    def _settled(self, peer: Peer, held: Held, kind: str) -> None:
        del peer.issued[held.id]
        if self.fault != "stalls":
            held.consumer.held.remove(held)
        if kind == "ack":
            peer.acknowledged.add(held.id)
        else:
            self._fail(held.message)

    def _fail(self, message: QueuedMessage) -> None:
        message.failures += 1
        if self.fault != "hurries":
            message.due = time.monotonic() + self.rules.delay(message.failures)
        if message.failures >= message.limit + {"gives up early": -1, "gives up late": 1}.get(self.fault, 0):
            extra = [
                ("dead-letter-reason", message.reason),
                ("original-destination", message.queue),
                ("delivery-count", str(message.deliveries)),
            ]
            dead = dead_letter_queue(message.queue)
            message = QueuedMessage(message.body, dead, message.place, message.headers + extra, 1 << 30, "")
        self._waiting.append(message)

    def _lose(self, peer: Peer) -> None:
        if peer.sock.fileno() < 0:
            return
        self._selector.unregister(peer.sock)
        with contextlib.suppress(OSError):
            peer.sock.shutdown(socket.SHUT_WR)
        peer.sock.close()
        for subscription in peer.subscriptions.values():
            self._end(subscription)

    def _end(self, subscription: Subscription) -> None:
        self._subscriptions.remove(subscription)
        peer = subscription.peer
        for held in subscription.held:
            if peer.issued.pop(held.id, None) is None or self.fault == "loses":
                continue
            if self.fault == "reorders":
                self._places += 1
                held.message.place = self._places
            if self.fault == "miscounts":
                held.message.deliveries -= 1
            self._waiting.append(held.message)
        if self.fault == "doubles" and peer.acknowledged:
            body, queue = peer.acknowledged.pop().rsplit("|")[-2:]
            self._waiting.append(QueuedMessage(body, queue, 0, [("kept", body)], 10, "", deliveries=1))

    def _time_out(self) -> None:
        for subscription in self._subscriptions if self.rules.ack_timeout else ():
            for held in list(subscription.held):
                if time.monotonic() >= held.since + self.rules.ack_timeout:
                    subscription.held.remove(held)
                    del subscription.peer.issued[held.id]
                    self._fail(held.message)

    def _dispatch(self) -> None:
        now = time.monotonic()
        for message in sorted(self._waiting, key=lambda each: each.place):
            if message.due > now:
                continue
            open_to = [each for each in self._subscriptions if self._takes(each, message)]
            if open_to:
                self._turn += 1
                self._waiting.remove(message)
                self._deliver(message, open_to[self._turn % len(open_to)])
                if self.fault == "shares" and len(open_to) > 1:
                    self._deliver(message, open_to[(self._turn + 1) % len(open_to)])

    def _takes(self, subscription: Subscription, message: QueuedMessage) -> bool:
        room = subscription.prefetch + (self.fault == "overfills")
        full = subscription.mode != "auto" and subscription.prefetch and len(subscription.held) >= room
        return not full and matches(subscription.pattern, message.queue)

    def _deliver(self, message: QueuedMessage, subscription: Subscription) -> None:
        peer = subscription.peer
        message.deliveries += 1
        self._ids += 1
        id = f"{self._ids if peer.version != '1.1' else 'm'}|{message.body}|{message.queue}"
        headers = {
            "subscription": subscription.id,
            "message-id": id,
            "destination": message.queue,
            "content-length": str(len(message.body)),
        }
        if message.deliveries > 1:
            headers |= {"redelivered": "true", "delivery-count": str(message.deliveries)}
        if subscription.mode != "auto":
            key = id if peer.version != "1.1" else f"{subscription.id}/{id}"
            held = Held(message, subscription, key, time.monotonic())
            peer.issued[key] = held
            subscription.held.append(held)
            if peer.version == "1.2":
                headers["ack"] = id
        self._write(peer, "MESSAGE", message.body, **(dict(message.headers) | headers))
