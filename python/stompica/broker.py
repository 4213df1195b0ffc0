"""A broker inside a Python process."""

from __future__ import annotations

import json
import logging
import threading
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stompica import _core, logs
from stompica import settings as sources
from stompica.errors import BrokerFailed, NotRunning
from stompica.settings import Given, SettingValue

if TYPE_CHECKING:
    from stompica.diag import Diag

_STOP_SECONDS = 10.0
_ENDING_SECONDS = 1.0
_FREE_PORT: Given = ("port", "0", "default")
"""Lowest priority: any other source overrides it. The command's default port is another one."""


@dataclass(frozen=True)
class Connection:
    """One open connection as the broker sees it."""

    id: int
    peer: tuple[str, int]
    """Host and port of the other side."""
    shard: int
    """The writer thread it lives on, from 0."""
    transport: str
    """`stomp`, `websocket`, `http`, or `unknown` before its first bytes."""
    version: str | None
    """STOMP version of the session; None before CONNECTED."""
    subscriptions: int
    outbox_bytes: int
    """Bytes queued for it and not yet written."""


@dataclass
class _Run:
    """The broker between one `start` and the end of its `stop`."""

    core: _core.Broker
    finalizer: weakref.finalize[..., Broker]
    """Runs once: on stop, when the Broker is garbage-collected, or when the interpreter exits."""
    draining: bool = False


class Broker:
    """A broker in this process, listening on a port of 127.0.0.1 unless told otherwise.

    >>> with Broker() as broker:
    ...     broker.url.startswith("stomp://127.0.0.1:")
    True

    `port` 0 picks a free port; None takes the settings file's, or 0 without one. `settings` are those of
    docs/configuration.md by name; ConfigError for one that is refused. `config` names a settings file, which is read
    here and again by `reload`. Environment variables are not read, and no signal handlers are installed. The broker
    logs to `logger`, by default the one named "stompica".

    Many brokers can run in one process. `async with` works too. Calling `start` or `stop` twice is harmless, and a
    broker that was stopped or drained can be started again. Threads may share it.
    """

    def __init__(self, port: int | None = 0, *, logger: logging.Logger | None = None, **settings: SettingValue) -> None:
        if not isinstance(logger, (logging.Logger, type(None))):
            raise TypeError(f"logger is a logging.Logger or None, not {type(logger).__name__}")
        self._settings: dict[str, SettingValue] = {"port": port, **settings}
        self._given = self._collect(self._settings)
        self._logger = logger or logs.logger
        self._run: _Run | None = None
        # Guards changes of `_run` and of the settings. Reentrant, since a signal handler may call `stop` at any point.
        self._lock = threading.RLock()

    @staticmethod
    def _collect(settings: dict[str, SettingValue]) -> list[Given]:
        given = [_FREE_PORT, *sources.collect(sources.from_keywords(settings))]
        sources.check(given)
        return given

    def start(self) -> Broker:
        """Starts listening; returns the broker itself. StartError if the address is not available.

        If the broker is draining, waits for its end first. BrokerFailed if a broker thread has panicked and `stop` has
        not been called since.
        """
        run = self._run
        if run is not None and (run.draining or run.core.wait(0)):
            run.core.wait()
            self._end(run)
        with self._lock:
            if self._run is None:
                core = _core.Broker.start(self._given)
                dispatcher = logs.Dispatcher(core, logs.logging_sink(self._logger))
                self._run = _Run(core, weakref.finalize(self, _shut_down, core, dispatcher))
        return self

    def stop(self) -> None:
        """Stops at once and waits for the end. BrokerFailed if a broker thread had panicked."""
        run = self._run
        if run is not None:
            self._end(run)

    def _end(self, run: _Run) -> None:
        try:
            run.core.stop()
            run.core.wait(_STOP_SECONDS)
        finally:
            run.finalizer()
            with self._lock:
                if self._run is run:  # another thread may have ended it, too, and have started the next one
                    self._run = None

    def drain(self, timeout: float | None = None) -> bool:
        """Drains and shuts down (setting `drain`); waits up to `timeout` seconds. Returns whether it has ended."""
        run = self._run
        if run is None:
            return True
        run.draining = True
        run.core.drain()
        return run.core.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits up to `timeout` seconds for the broker to end; returns whether it has. BrokerFailed after a panic."""
        run = self._run
        return run is None or run.core.wait(timeout)

    def settle(self, timeout: float = 10.0) -> bool:
        """Waits until all that was received is delivered: mailboxes empty, outboxes flushed. False after `timeout` s.

        NotRunning if the broker has ended, or ends while this waits.
        """
        core = self._running()
        if core.settle(timeout):
            return True
        if core.wait(0):
            raise NotRunning("the broker has ended")
        return False

    def reload(self, **settings: SettingValue) -> list[str]:
        """Rereads the settings file, if any, merges in `settings`, and applies those that a running broker can change.

        Returns the names of changed settings that need a restart. On ConfigError nothing changes.
        """
        core = self._running()
        with self._lock:
            merged = {**self._settings, **settings}
            given = self._collect(merged)
            restart = core.reload(given)
            self._settings, self._given = merged, given
        return restart

    @property
    def host(self) -> str:
        """The address it listens on, without the port."""
        return self.address[0]

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.address[1]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, ready for `socket.create_connection`."""
        return self._running().address()

    @property
    def url(self) -> str:
        """`stomp://HOST:PORT`."""
        return _url(self.address)

    @property
    def ws_url(self) -> str:
        """`ws://HOST:PORT/ws`."""
        return f"ws{_url(self.address).removeprefix('stomp')}/ws"

    def connections(self) -> list[Connection]:
        """The open connections."""
        rows: list[dict[str, Any]] = self._running().connections()
        return [Connection(**row) for row in rows]

    def stats(self) -> dict[str, int]:
        """The broker's counters, by name."""
        return self._running().stats()

    @property
    def diag(self) -> Diag:
        """Diagnostics: `broker.diag("session")`, `broker.diag.watch("network", interval=1.0)`; see docs/diag.md."""
        from stompica.diag import Diag  # imported here to keep `import stompica` fast

        return Diag(self._answer)

    def _answer(self, query: str) -> Any:
        from stompica.diag import DiagError

        core = self._running()
        try:
            return json.loads(core.diag(query))
        except ValueError as error:
            raise DiagError(f"DIAG {query}: {error}") from None
        except BrokerFailed as error:
            # A draining broker may still be ending its last threads.
            if core.wait(_ENDING_SECONDS):
                raise NotRunning("the broker has ended") from None
            raise DiagError(f"DIAG {query}: {error}") from None

    def _running(self) -> _core.Broker:
        run = self._run
        if run is None:
            raise NotRunning("the broker is not running: start() it, or use it as a context manager")
        return run.core

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Broker:
        import asyncio  # imported here: it takes longer to load than everything else together

        run = self._run
        if run is not None and run.draining:
            await asyncio.to_thread(self.wait)  # in a thread: its clients may run on this event loop
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)

    def __repr__(self) -> str:
        run = self._run
        if run is None or self._has_ended(run.core):
            return "<stompica.Broker not running>"
        return f"<stompica.Broker {_url(run.core.address())}{' draining' if run.draining else ''}>"

    @staticmethod
    def _has_ended(core: _core.Broker) -> bool:
        try:
            return core.wait(0)
        except BrokerFailed:
            return True


def _url(address: tuple[str, int]) -> str:
    host, port = address
    return f"stomp://[{host}]:{port}" if ":" in host else f"stomp://{host}:{port}"


def _shut_down(core: _core.Broker, dispatcher: logs.Dispatcher) -> None:
    core.stop()
    dispatcher.close()
