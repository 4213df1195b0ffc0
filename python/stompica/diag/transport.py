"""Transports to a remote broker: TCP, or WebSocket with the package `websockets`."""

from __future__ import annotations

import contextlib
import socket
from typing import Protocol

from stompica.diag.records import DiagError

FRAME_MAX = 64 * 1024 * 1024
"""Longer answers are refused."""

CLOSE_TIMEOUT_S = 1.0
"""How long a WebSocket server may take to answer the closing handshake."""


class Transport(Protocol):
    """Carries frames. One thread may receive while others send."""

    def send(self, frame: bytes) -> None:
        """Sends one frame. OSError or EOFError if that fails."""

    def receive(self) -> bytes:
        """Returns the next bytes; empty or EOFError at the end of the connection, TimeoutError if nothing came yet."""

    def close(self) -> None:
        """Closes, and wakes a thread that receives. Idempotent."""

    def abandon(self) -> None:
        """Ends the connection at once without waiting for anything, not even a lock."""


class TcpTransport:
    """A TCP connection."""

    def __init__(self, host: str, port: int, timeout: float | None) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        """See `Transport`."""
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """See `Transport`."""
        return self._socket.recv(65536)

    def close(self) -> None:
        """See `Transport`."""
        self.abandon()
        self._socket.close()

    def abandon(self) -> None:
        """See `Transport`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class WebSocketTransport:
    """A WebSocket connection."""

    def __init__(self, url: str, timeout: float | None) -> None:
        try:
            from websockets.exceptions import WebSocketException
            from websockets.sync.client import connect
            from websockets.typing import Subprotocol
        except ImportError:
            raise DiagError("ws:// needs a package: pip install websockets; or use stomp://, the same port") from None
        self._failure = WebSocketException
        try:
            opening = connect(
                url,
                subprotocols=[Subprotocol("v12.stomp")],
                open_timeout=timeout,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=FRAME_MAX,
                proxy=None,
            )
            self._socket = opening.__enter__()
        except (WebSocketException, EOFError) as error:
            raise DiagError(f"{url}: {error}") from None

    def send(self, frame: bytes) -> None:
        """See `Transport`."""
        try:
            self._socket.send(frame.decode())
        except self._failure as error:
            raise EOFError(str(error)) from None

    def receive(self) -> bytes:
        """See `Transport`."""
        try:
            received = self._socket.recv()
        except self._failure as error:
            raise EOFError(str(error)) from None
        return received.encode() if isinstance(received, str) else received

    def close(self) -> None:
        """See `Transport`."""
        self._socket.close()

    def abandon(self) -> None:
        """See `Transport`."""
        with contextlib.suppress(OSError):
            self._socket.socket.shutdown(socket.SHUT_RDWR)
