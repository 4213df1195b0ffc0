"""DIAG of a broker elsewhere: a small blocking STOMP 1.2 connection over TCP or WebSocket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

from stompica.diag.front import Diag
from stompica.diag.records import QUERIES, DiagError

DEFAULT_PORT = 61613
FRAME_MAX = 64 * 1024 * 1024
"""An answer that is longer is refused."""

_ESCAPES = {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"}


class Pipe(Protocol):
    """What carries frames."""

    def send(self, frame: bytes) -> None:
        """Sends one frame."""

    def receive(self) -> bytes:
        """Bytes as they come; empty at the end."""

    def close(self) -> None:
        """Closes; whoever receives is woken."""


class RemoteDiag(Diag):
    """DIAG over a connection of its own. A context manager; threads may share it."""

    def __init__(self, pipe: Pipe, shown: str, login: str | None, passcode: str | None) -> None:
        super().__init__(self._ask)
        self._pipe = pipe
        self._shown = shown
        self._buffer = bytearray()
        self._lock = threading.Lock()
        headers = {"accept-version": "1.2", "host": "localhost", "heart-beat": "0,0"}
        if login is not None:
            headers.update(login=login, passcode=passcode or "")
        connected, _ = self._exchange("CONNECT", headers, b"", "CONNECTED")
        self.server = connected.get("server", "").partition("/")[2]
        """Version of the broker."""

    def close(self) -> None:
        """Closes the connection. Twice is fine."""
        self._pipe.close()

    def _ask(self, query: str) -> Any:
        headers, body = self._exchange("DIAG", {}, query.encode(), "DIAG")
        try:
            if body:
                return json.loads(body)
            text = headers[query]
            if QUERIES[query] == tuple[str, ...]:
                return [name for name in text.split(",") if name]
            return json.loads(text)
        except (KeyError, ValueError) as error:
            raise DiagError(f"{self._shown} answered DIAG {query} with something else: {error!r}") from None

    def _exchange(
        self, command: str, headers: dict[str, str], body: bytes, wanted: str
    ) -> tuple[dict[str, str], bytes]:
        with self._lock:
            try:
                self._pipe.send(_frame(command, headers, body))
                found, answer_headers, answer = self._receive()
            except TimeoutError:
                self.close()  # a late answer would be taken for that of the next question
                raise DiagError(f"{self._shown} did not answer in time") from None
            except (OSError, EOFError) as error:
                raise DiagError(f"{self._shown}: {error or 'connection closed'}") from None
        if found == "ERROR":
            raise DiagError(f"{self._shown} refused: {answer_headers.get('message', 'ERROR')}")
        if found != wanted:
            raise DiagError(f"{self._shown} answered {command} with {found}: is it stompica?")
        return answer_headers, answer

    def _receive(self) -> tuple[str, dict[str, str], bytes]:
        while True:
            frame = _take(self._buffer)
            if frame is not None:
                return frame
            if len(self._buffer) > FRAME_MAX:
                raise DiagError(f"{self._shown} sent a frame over {FRAME_MAX >> 20} MiB")
            try:
                received = self._pipe.receive()
            except ConnectionResetError:
                received = b""  # the same, said in a hurry
            if not received:
                raise EOFError("closed the connection")
            self._buffer += received

    def __enter__(self) -> RemoteDiag:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def connect(
    url: str, *, login: str | None = None, passcode: str | None = None, timeout: float | None = 10.0
) -> RemoteDiag:
    """Connects to a broker: `stomp://HOST:PORT`, `ws://HOST:PORT/PATH`, or just `HOST:PORT`.

    No answer takes longer than `timeout` seconds. `ws://` needs the package `websockets`. DiagError where nobody
    answers there. Brokers answer DIAG to clients of the same machine only, unless they have users.
    """
    parts = urlsplit(url if "://" in url else f"stomp://{url}")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise DiagError(f"{url}: the port is not a number up to 65535") from None
    if not parts.hostname or parts.scheme not in ("stomp", "tcp", "ws"):
        raise DiagError(f"{url}: write stomp://HOST:PORT or ws://HOST:PORT/PATH")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}:{port}"
    try:
        if parts.scheme == "ws":
            pipe: Pipe = _WebSocket(f"{shown}{parts.path or '/'}", timeout)
        else:
            pipe = _Socket(parts.hostname, port, timeout)
    except OSError as error:
        raise DiagError(f"{shown}: {error.strerror or error}") from None
    try:
        return RemoteDiag(pipe, shown, login or parts.username, passcode or parts.password)
    except BaseException:
        pipe.close()
        raise


class _Socket:
    def __init__(self, host: str, port: int, timeout: float | None) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        return self._socket.recv(65536)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _WebSocket:
    def __init__(self, url: str, timeout: float | None) -> None:
        try:
            from websockets.exceptions import WebSocketException
            from websockets.sync.client import connect as open_websocket
            from websockets.typing import Subprotocol
        except ImportError:
            raise DiagError("ws:// needs a package: pip install websockets; or use stomp://, the same port") from None
        self._failure = WebSocketException
        self._timeout = timeout
        try:
            opening = open_websocket(
                url, subprotocols=[Subprotocol("v12.stomp")], open_timeout=timeout, max_size=FRAME_MAX, proxy=None
            )
            self._socket = opening.__enter__()
        except WebSocketException as error:
            raise DiagError(f"{url}: {error}") from None

    def send(self, frame: bytes) -> None:
        try:
            self._socket.send(frame.decode())
        except self._failure as error:
            raise EOFError(str(error)) from None

    def receive(self) -> bytes:
        try:
            received = self._socket.recv(self._timeout)
        except self._failure as error:
            raise EOFError(str(error)) from None
        return received.encode() if isinstance(received, str) else received

    def close(self) -> None:
        self._socket.close()


def _frame(command: str, headers: dict[str, str], body: bytes) -> bytes:
    if body:
        headers = {**headers, "content-length": str(len(body))}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def _take(buffer: bytearray) -> tuple[str, dict[str, str], bytes] | None:
    """Takes the first whole frame off `buffer`; None if there is none yet."""
    while buffer.startswith((b"\n", b"\r")):
        del buffer[:1]
    end = buffer.find(b"\n\n")
    if end < 0:
        return None
    command, *lines = buffer[:end].decode("utf-8", "replace").split("\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(_unescape(name), value if command == "CONNECTED" else _unescape(value))
    begin = end + 2
    length = headers.get("content-length")
    stop = begin + int(length) if length is not None else buffer.find(b"\0", begin)
    if stop < begin or stop >= len(buffer):
        return None
    body = bytes(buffer[begin:stop])
    del buffer[: stop + 1]
    return command, headers, body


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = text.split("\\\\")
    for escape, character in _ESCAPES.items():
        if escape != "\\\\":
            parts = [part.replace(escape, character) for part in parts]
    return "\\".join(parts)
