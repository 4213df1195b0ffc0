"""DIAG of a remote broker, over TCP or WebSocket: queries as DIAG frames, watches as subscriptions."""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from stompica.diag.api import Diag
from stompica.diag.connection import Connection
from stompica.diag.frames import Frame
from stompica.diag.records import QUERIES, DiagError, decode
from stompica.diag.transport import TcpTransport, Transport, WebSocketTransport
from stompica.diag.watch import T, Watch, check_interval

DEFAULT_PORT = 61613
REMOTE_INTERVAL_MIN_S = 0.1
"""The broker refuses shorter intervals."""

_STATISTICS = {
    "session": {name: name for name in ("clients", "websockets", "stomp_connected", "subscriptions")},
    "ws_buffer": {name: name for name in ("allocated", "hits", "misses")},
    "stale": {"in": "input-queue-size", "out": "output-queue-size", "stale": "stale-queue-size"},
}
"""For answers in headers of a MESSAGE: header of each JSON field."""


class RemoteDiag(Diag):
    """DIAG over its own connection. A context manager; threads may share it."""

    def __init__(
        self, transport: Transport, shown: str, login: str | None, passcode: str | None, timeout: float | None
    ) -> None:
        super().__init__(self._ask)
        weakref.finalize(self, transport.abandon)
        self._connection = Connection(transport, shown, timeout)
        headers = {"accept-version": "1.2", "host": "localhost", "heart-beat": "0,0"}
        if login is not None:
            headers.update(login=login, passcode=passcode or "")
        connected = self._connection.exchange("CONNECT", headers, b"", "CONNECTED")
        self.server = connected.headers.get("server", "").partition("/")[2]
        """Version of the broker."""
        self.address = shown
        """The broker's address, without login and passcode."""

    def close(self) -> None:
        """Closes the connection, which ends its watches. Idempotent."""
        self._connection.close()

    def _ask(self, query: str) -> Any:
        return _answer(query, self._connection.exchange("DIAG", {}, query.encode(), "DIAG"), self._connection.shown)

    def _watch(self, query: str, interval: float) -> Watch[Any]:
        return Pushed(self, self._connection, query, interval)

    def __enter__(self) -> RemoteDiag:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    url: str, *, login: str | None = None, passcode: str | None = None, timeout: float | None = 10.0
) -> RemoteDiag:
    """Connects to a broker: `stomp://HOST:PORT`, `ws://HOST:PORT/PATH`, or just `HOST:PORT`.

    An answer is awaited for `timeout` seconds, with None forever. `ws://` needs the package `websockets`. DiagError
    if the broker can't be reached or refuses. A broker without configured users answers DIAG to clients on the same
    machine only.
    """
    try:
        parts = urlsplit(url if "://" in url else f"stomp://{url}")
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError as error:
        raise DiagError(f"{url!r} is not an address: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if not parts.hostname or parts.scheme not in ("stomp", "tcp", "ws"):
        raise DiagError(f"{url!r} is not an address: write stomp://HOST:PORT or ws://HOST:PORT/PATH")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}:{port}"
    try:
        if parts.scheme == "ws":
            transport: Transport = WebSocketTransport(f"{shown}{parts.path or '/'}", timeout)
        else:
            transport = TcpTransport(parts.hostname, port, timeout)
    except OSError as error:
        raise DiagError(f"{shown}: {error.strerror or error}") from None
    try:
        return RemoteDiag(
            transport, shown, login or _plain(parts.username), passcode or _plain(parts.password), timeout
        )
    except BaseException:
        transport.close()
        raise


def _plain(text: str | None) -> str | None:
    return None if text is None else unquote(text)


class Pushed(Watch[T]):
    """One subscription with the header `interval`, started by the first `next`; the broker pushes the records.

    Only the newest record is kept for the reader. A broker that has sent nothing for the interval plus the connection's
    timeout is considered dead.
    """

    def __init__(self, remote: RemoteDiag, connection: Connection, query: str, interval: float) -> None:
        check_interval(interval, REMOTE_INTERVAL_MIN_S)
        self._remote = remote  # keeps it alive: its finalizer closes the connection
        self._connection = connection
        self._query = query
        self._interval = interval
        self._limit = None if connection.timeout is None else interval + connection.timeout
        self._changed = threading.Condition()
        self._newest: Frame | None = None
        self._failure: DiagError | None = None
        self._ended = False
        self._key: str | None = None
        self._wakers: set[Callable[[], object]] = set()

    def close(self) -> None:
        """See `Watch`."""
        with self._changed:
            self._newest = self._failure = None
        self.end(None)
        if self._key is not None:
            self._connection.unsubscribe(self._key)

    def offer(self, frame: Frame) -> None:
        """See `Subscriber`. Skips answers to queries that others SEND to the same destination."""
        if frame.headers.get("query", frame.body.decode("utf-8", "replace")) == self._query:
            with self._changed:
                if not self._ended:
                    self._newest = frame
                    self._wake()

    def end(self, failure: DiagError | None) -> None:
        """See `Subscriber`."""
        with self._changed:
            if not self._ended:
                self._ended, self._failure = True, failure
                self._wake()

    def __next__(self) -> T:
        self._begin()
        with self._changed:
            self._changed.wait_for(self._is_ready, self._limit)
            frame = self._take()
        if frame is None:
            raise StopIteration
        return self._record(frame)

    async def __anext__(self) -> T:
        import asyncio  # imported here: it takes longer to load than everything else together

        self._begin()
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(woken.set)

        with self._changed:
            self._wakers.add(wake)
        try:
            while not self._is_ready():
                woken.clear()
                await asyncio.wait_for(woken.wait(), self._limit)
        except asyncio.TimeoutError:
            pass
        finally:
            with self._changed:
                self._wakers.discard(wake)
        frame = self._take()
        if frame is None:
            raise StopAsyncIteration
        return self._record(frame)

    def _begin(self) -> None:
        with self._changed:
            if self._key is not None or self._ended:
                return
            headers = {"query": self._query, "interval": str(round(self._interval * 1000))}
            try:
                self._key = self._connection.subscribe(self, f"DIAG/{self._query}", headers)
            except DiagError:
                self._ended = True
                raise

    def _is_ready(self) -> bool:
        return self._ended or self._newest is not None

    def _wake(self) -> None:
        self._changed.notify_all()
        for wake in self._wakers:
            wake()

    def _take(self) -> Frame | None:
        """Returns the newest answer, None at the end. Raises the reason for the end, once."""
        with self._changed:
            if not self._is_ready():
                self._ended = True
                self._failure = DiagError(f"{self._connection.shown} did not answer in time")
            frame, self._newest = self._newest, None
            if frame is None and self._failure is not None:
                failure = self._failure
                self.close()
                raise failure
        return frame

    def _record(self, frame: Frame) -> T:
        try:
            record: T = decode(self._query, _answer(self._query, frame, self._connection.shown))
        except DiagError:
            self.close()
            raise
        return record


def _answer(query: str, frame: Frame, shown: str) -> Any:
    """Returns the content of a DIAG frame or a MESSAGE as decoded JSON."""
    headers = frame.headers
    try:
        if frame.body and "query" in headers:
            return json.loads(frame.body)
        if query in headers:
            text = headers[query]
            if QUERIES[query] == tuple[str, ...]:
                return [name for name in text.split(",") if name]
            return json.loads(text)
        return {name: int(headers[header]) for name, header in _STATISTICS[query].items()}
    except (KeyError, ValueError) as error:
        raise DiagError(f"{shown} sent an invalid answer to DIAG {query}: {error!r}") from None
