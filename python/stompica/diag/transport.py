"""What carries frames to a broker elsewhere: TCP, or a WebSocket by the package `websockets`."""

from __future__ import annotations

import contextlib
import socket
from typing import Protocol

from stompica.diag.records import DiagError

FRAME_MAX = 64 * 1024 * 1024
"""An answer that is longer is refused."""

CLOSE_TIMEOUT_S = 1.0
"""A WebSocket's server has this long to agree to its end."""


class Pipe(Protocol):
    """What carries frames. One thread may receive while others send."""

    def send(self, frame: bytes) -> None:
        """Sends one frame. OSError or EOFError where it can't."""

    def receive(self) -> bytes:
        """Bytes as they come; empty at the end, which may be an EOFError too. TimeoutError: nothing came yet."""

    def close(self) -> None:
        """Closes; whoever receives is woken. Twice is fine."""

    def abandon(self) -> None:
        """Ends it at once and waits for nothing, not even for a lock."""


class TcpPipe:
    """A TCP connection."""

    def __init__(self, host: str, port: int, timeout: float | None) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        """See `Pipe`."""
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """See `Pipe`."""
        return self._socket.recv(65536)

    def close(self) -> None:
        """See `Pipe`."""
        self.abandon()
        self._socket.close()

    def abandon(self) -> None:
        """See `Pipe`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class WebSocketPipe:
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
        """See `Pipe`."""
        try:
            self._socket.send(frame.decode())
        except self._failure as error:
            raise EOFError(str(error)) from None

    def receive(self) -> bytes:
        """See `Pipe`."""
        try:
            received = self._socket.recv()
        except self._failure as error:
            raise EOFError(str(error)) from None
        return received.encode() if isinstance(received, str) else received

    def close(self) -> None:
        """See `Pipe`."""
        self._socket.close()

    def abandon(self) -> None:
        """See `Pipe`."""
        with contextlib.suppress(OSError):
            self._socket.socket.shutdown(socket.SHUT_RDWR)
