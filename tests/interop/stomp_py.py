"""A stomp.py connection whose frames can be waited for, without a listener of the test's own."""

from __future__ import annotations

import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import stomp
from stomp.adapter.ws import WSStompConnection

TIMEOUT = 30.0
"""Seconds until an awaited frame counts as missing."""


class Inbox:
    """A stomp.py listener that keeps all events, in order per kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, queue.SimpleQueue[Any]] = {
            kind: queue.SimpleQueue()
            for kind in ("connected", "message", "receipt", "error", "heartbeat", "heartbeat_timeout", "disconnected")
        }

    def on_connected(self, frame: Any) -> None:
        self._kinds["connected"].put(frame)

    def on_message(self, frame: Any) -> None:
        self._kinds["message"].put(frame)

    def on_receipt(self, frame: Any) -> None:
        self._kinds["receipt"].put(frame)

    def on_error(self, frame: Any) -> None:
        self._kinds["error"].put(frame)

    def on_heartbeat(self) -> None:
        self._kinds["heartbeat"].put(None)

    def on_heartbeat_timeout(self) -> None:
        self._kinds["heartbeat_timeout"].put(None)

    def on_disconnected(self) -> None:
        self._kinds["disconnected"].put(None)

    def next(self, kind: str, timeout: float = TIMEOUT) -> Any:
        """Returns the next event of this kind, waiting for it if necessary."""
        try:
            return self._kinds[kind].get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no {kind} within {timeout} s") from None

    def is_empty(self, kind: str) -> bool:
        """Whether no event of this kind is waiting."""
        return self._kinds[kind].empty()


class Session:
    """A connected stomp.py connection (`stomp`) with its `inbox`."""

    def __init__(self, connection: Any, **connect: Any) -> None:
        self.stomp = connection
        self.inbox = Inbox()
        self.stomp.set_listener("inbox", self.inbox)
        self.stomp.connect(wait=True, **connect)
        self.connected = self.inbox.next("connected").headers

    def receipt(self, act: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
        """Calls `act` with a receipt header and waits for the RECEIPT."""
        receipt = f"receipt-of {act.__name__}"
        keywords["headers"] = {**keywords.get("headers", {}), "receipt": receipt}
        act(*arguments, **keywords)
        assert self.inbox.next("receipt").headers == {"receipt-id": receipt}

    def message(self, timeout: float = TIMEOUT) -> Any:
        """Returns the next MESSAGE."""
        return self.inbox.next("message", timeout)

    def ack(self, message: Any, **options: Any) -> None:
        """Acknowledges a MESSAGE in the form of the STOMP version, with a RECEIPT; `options` may name a transaction."""
        self._answer(self.stomp.ack, message, **options)

    def nack(self, message: Any, **options: Any) -> None:
        """Sends NACK for a MESSAGE, with a RECEIPT; 1.0 has no NACK."""
        self._answer(self.stomp.nack, message, **options)

    def _answer(self, act: Callable[..., Any], message: Any, **options: Any) -> None:
        headers = message.headers
        if self.stomp.version == "1.2":
            named = [headers["ack"]]
        else:
            named = [headers["message-id"], headers["subscription"]][: 2 if self.stomp.version == "1.1" else 1]
        act(*named, receipt="acked", **options)
        assert self.inbox.next("receipt").headers == {"receipt-id": "acked"}

    def lose(self) -> None:
        """Ends the connection without DISCONNECT, like a network failure."""
        sock = self.stomp.transport.socket
        # Over WebSocket the library's own close has no effect while its thread is reading.
        getattr(sock, "sock", sock).shutdown(socket.SHUT_RDWR)
        self.inbox.next("disconnected")

    def disconnect(self) -> None:
        """Ends the session in order: DISCONNECT, its RECEIPT, the end of the connection."""
        self.stomp.disconnect(receipt="bye")
        assert self.inbox.next("receipt").headers == {"receipt-id": "bye"}
        self.inbox.next("disconnected")
        assert self.inbox.is_empty("error")


def over_tcp(kind: Any) -> Callable[..., Any]:
    """Returns a function that makes connections of one of stomp.py's TCP classes."""

    def make(port: int, **options: Any) -> Any:
        return kind([("127.0.0.1", port)], timeout=TIMEOUT, **options)

    return make


def over_websocket(*, binary: bool) -> Callable[..., Any]:
    """Returns a function that makes WebSocket connections; frames are sent as text or as binary messages."""

    def make(port: int, **options: Any) -> Any:
        return WSStompConnection(
            [("127.0.0.1", port)], ws_path="/stomp", timeout=TIMEOUT, binary_mode=binary, **options
        )

    return make


CONNECTIONS = {
    "tcp-1.0": over_tcp(stomp.StompConnection10),
    "tcp-1.1": over_tcp(stomp.StompConnection11),
    "tcp-1.2": over_tcp(stomp.StompConnection12),
    "websocket-text": over_websocket(binary=False),
    "websocket-binary": over_websocket(binary=True),
}
"""How to make each kind of stomp.py connection."""


@contextmanager
def session(kind: str, port: int, *, connect: dict[str, Any] | None = None, **options: Any) -> Iterator[Session]:
    """Yields a connected session; at the end it is disconnected in order unless it has already ended."""
    started = Session(CONNECTIONS[kind](port, **options), **(connect or {}))
    try:
        yield started
        if started.stomp.is_connected():
            started.disconnect()
    finally:
        started.stomp.transport.disconnect_socket()
