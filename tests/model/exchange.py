"""Exchanges frames with a broker over several connections, and reports each of them to the model."""

from __future__ import annotations

import collections
import contextlib
import select
import time
from collections.abc import Callable, Iterator

from tests.model.links import TcpLink, WebSocketLink
from tests.model.model import Model
from tests.model.rules import Rules
from tests.model.state import Command, Consumer, Delivery, Transaction, Violation
from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire

DELIVERY_TIMEOUT = 30.0
"""Seconds until a frame that the broker must send counts as lost."""
PREFETCH_NAMES = ("prefetch-count", "activemq.prefetchSize", "prefetch")


class Client:
    """One connection and its state in the test."""

    def __init__(self, name: str, version: str, link: TcpLink | WebSocketLink) -> None:
        self.name = name
        self.version = version
        self.link = link
        self.pending: collections.deque[tuple[str, Command]] = collections.deque()
        self.consumers: list[Consumer] = []
        self.transactions: list[Transaction] = []
        self.leaving = ""
        """Why the broker will close it: `disconnect`, `half_close`, `bad ack`, `error`; empty while it stays open."""
        self.expects_error = False
        self.drains = False
        """It acknowledges every message at once."""
        self.numbers = 0

    def number(self) -> int:
        """Returns the next number for an id of this client."""
        self.numbers += 1
        return self.numbers

    def __str__(self) -> str:
        return self.name


class Exchange:
    """Several clients of one broker, and the model that checks what they are sent."""

    def __init__(self, port: int, rules: Rules) -> None:
        self.port = port
        self.rules = rules
        self.model = Model(rules)
        self.clients: list[Client] = []
        self.trace: list[str] = []
        self._joined = 0
        self._sent = 0
        self._began = time.monotonic()

    def discard(self) -> None:
        """Closes all connections."""
        for client in self.clients:
            client.link.discard()

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Turns every failure into a `Violation` that has the end of the trace."""
        try:
            yield
        except (AssertionError, OSError) as error:
            tail = "\n".join(self.trace[-400:])
            raise Violation(f"{error}\n{tail}") from error

    def await_receipts(self, client: Client) -> None:
        """Waits until the client has a RECEIPT for every frame that it sent."""
        self.wait_until(
            lambda: not client.pending or client not in self.clients,
            lambda: f"no RECEIPT for {client.pending[0][1]}",
        )

    def wait_until(self, check: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Reads from all clients until `check` is true; `what` says what was missing otherwise."""
        deadline = time.monotonic() + DELIVERY_TIMEOUT
        while not check():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Violation(f"after {DELIVERY_TIMEOUT} s:  {what if isinstance(what, str) else what()}")
            self.receive(min(left, 0.05))

    def receive(self, timeout: float) -> None:
        """Reads what has arrived for all clients; waits up to `timeout` seconds for the first frame."""
        by_socket = {client.link.sock: client for client in self.clients}
        ready, _, _ = select.select(list(by_socket), [], [], timeout)
        for sock in ready:
            client = by_socket[sock]
            found = client.link.read()
            for frame in found or ():
                self._handle(client, frame)
            if found is None or (isinstance(client.link, WebSocketLink) and client.link.at_end):
                self._handle_close(client)

    def _handle(self, client: Client, frame: Frame) -> None:
        if frame.command == "MESSAGE":
            self._handle_message(client, frame)
        elif frame.command == "RECEIPT":
            self.note(f"{client} <- RECEIPT {frame['receipt-id']}")
            if not client.pending or client.pending[0][0] != frame["receipt-id"]:
                raise Violation(f"{client}: {frame}, expected {[receipt for receipt, _ in client.pending]}")
            _, command = client.pending.popleft()
            self.model.receipt(command)
        else:
            self._handle_error(client, frame)

    def _handle_message(self, client: Client, frame: Frame) -> None:
        headers = dict(reversed(frame.headers))  # of a repeated header the first counts
        shown = {
            name: headers[name] for name in ("redelivered", "delivery-count", "dead-letter-reason") if name in headers
        }
        self.note(f"{client}/{headers.get('subscription')} <- {frame.text} of {frame['destination']} {shown or ''}")
        if headers.get("kept") != frame.text:
            raise Violation(f"the sender's header is missing: {frame}")
        delivery = self.model.message(client.name, frame["subscription"], frame.text, frame["destination"], headers)
        delivery.handle = frame
        if client.drains:
            self.settle(client, delivery, "ack")

    def _handle_error(self, client: Client, frame: Frame) -> None:
        self.note(f"{client} <- {frame.command} {frame.header('code')} {frame.header('message')}")
        refused = [command for receipt, command in client.pending if receipt == frame.header("receipt-id")]
        if client.expects_error and frame.header("code") == "E-ACK-UNKNOWN":
            pass
        elif refused and frame.header("code") == "E-TX-LOST":
            self.model.refused(refused[0])
        else:
            raise Violation(f"{client} got {frame}")
        client.leaving = "error"

    def _handle_close(self, client: Client) -> None:
        self.note(f"{client} is closed")
        if not client.leaving or (client.expects_error and client.leaving != "error"):
            raise Violation(f"{client} was closed without an ERROR")
        if client.leaving != "error" and client.pending:
            raise Violation(f"{client} was closed before the RECEIPT of {client.pending[0][1]}")
        self.forget(client, all_read=True)

    def forget(self, client: Client, *, all_read: bool) -> None:
        """The client's connection has ended."""
        self.clients.remove(client)
        client.link.discard()
        self.model.dropped(client.name, all_read=all_read)

    def note(self, line: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{(time.monotonic() - self._began) * 1000:8.1f} {line}")

    def send_command(self, client: Client, command: Command, name: str, *pairs: frames.Header, body: str = "") -> None:
        """Sends a frame with a receipt header; its RECEIPT is expected before the frame is written."""
        receipt = f"r{client.number()}"
        client.pending.append((receipt, command))
        self.note(f"{client} -> {name} {dict(pairs)} {body} ({receipt})")
        length = [("content-length", str(len(body)))] if body else []
        client.link.send(frames.frame(name, *pairs, *length, body=body, receipt=receipt))

    def join(self, version: str, *, websocket: bool) -> Client:
        """Connects a new client."""
        self._joined += 1
        link: Wire = WebSocketLink.connected(self.port, version) if websocket else TcpLink(self.port)
        assert isinstance(link, (TcpLink, WebSocketLink))
        if not websocket:
            link.connect(None if version == "1.0" else version)
        client = Client(f"c{self._joined}", version, link)
        self.note(f"{client} connects, {version}{' over WebSocket' if websocket else ''}")
        self.clients.append(client)
        return client

    # -- frames ------------------------------------------------------------------------------------------------

    def subscribe(self, client: Client, pattern: str, mode: str, prefetch: int) -> None:
        """Subscribes the client; a prefetch of 0 is unlimited."""
        id = f"s{client.number()}"
        command = self.model.subscribe(client.name, id, pattern, mode, 0 if mode == "auto" else prefetch)
        assert command.consumer is not None
        client.consumers.append(command.consumer)
        pairs = [("destination", pattern), ("id", id), ("ack", mode)]
        if mode != "auto":
            pairs.append((PREFETCH_NAMES[prefetch % 3], str(prefetch)))
        self.send_command(client, command, "SUBSCRIBE", *pairs)

    def send(
        self,
        client: Client,
        queue: str,
        transaction: Transaction | None = None,
        max_exceptions: int | None = None,
    ) -> None:
        """Sends one message with a new body."""
        self._sent += 1
        body = f"m{self._sent}"
        command = self.model.send(client.name, queue, body, max_exceptions=max_exceptions, transaction=transaction)
        pairs = [("destination", queue), ("kept", body)]
        if transaction is not None:
            pairs.append(("transaction", transaction.name))
        if max_exceptions is not None:
            pairs.append(("max-exceptions", str(max_exceptions)))
        self.send_command(client, command, "SEND", *pairs, body=body)

    def settle(self, client: Client, delivery: Delivery, kind: str, transaction: Transaction | None = None) -> None:
        """Sends ACK or NACK, as `kind` says, in the form of the client's STOMP version."""
        command = self.model.settle(delivery, kind, transaction)
        frame = delivery.handle
        assert isinstance(frame, Frame)
        pairs: list[frames.Header] = []
        if client.version == "1.2":
            pairs.append(("id", frame.raw_value(b"ack")))
        else:
            pairs.append(("message-id", frame.raw_value(b"message-id")))
        if client.version == "1.1":
            pairs.append(("subscription", delivery.consumer.id))
        if transaction is not None:
            pairs.append(("transaction", transaction.name))
        self.send_command(client, command, kind.upper(), *pairs)
