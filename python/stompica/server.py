"""The broker as a separate process, for `stompica serve` and `run`. All signal handling is here.

SIGTERM and SIGINT drain, a second one stops at once; SIGHUP rereads the settings. The log goes to stderr.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from stompica import _core, logs, settings
from stompica.errors import ConfigError
from stompica.settings import Given

_FEW_CONNECTIONS = 10_000


def serve(given: Sequence[Given]) -> None:
    """Runs a broker with these settings until a signal ends it.

    Raises ConfigError, StartError, or BrokerFailed after a panic in a broker thread.
    """
    logs.open_standard_streams()
    descriptors = _core.raise_descriptor_limit()
    _core.avoid_huge_pages()
    collected = settings.collect(given)
    effective = {key: value for key, value, _ in settings.check(collected)}
    server = _Server(given)
    with server.signals():
        core = _core.Broker.start(collected)
        sink = logs.StderrSink(effective["log_format"])
        server.attach(core, sink)
        dispatcher = logs.Dispatcher(core, sink)
        try:
            for level, line in greeting(core, collected, effective, descriptors):
                core.announce(level, line)
            core.wait()
            core.announce("info", "stopped")
        finally:
            dispatcher.close()


def greeting(
    core: _core.Broker, given: Sequence[Given], effective: dict[str, str], descriptors: int
) -> Iterator[tuple[str, str]]:
    """Yields the first lines of the log with their levels: version, address, writers and the effective limits.

    `descriptors` is how many the process may open; each connection takes one.
    """
    host, port = core.address()
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    yield "info", f"stompica {_core.__version__}"
    yield "info", f"listening on {address} (STOMP over TCP and WebSocket)"
    shown = ("writers", "max_connections", "memory_limit", "outbox_limit", "max_message_size", "slow_consumer")
    yield "info", " ".join(f"{key}={effective[key]}" for key in shown)
    for theirs, ours in {"dbm": "file", "activerecord": "sqlite"}.items():
        if any(value.strip().lower() == theirs for _, value, _ in given):
            yield "info", f"stompserver's store {theirs} means store={ours}: its own messages are not read"
    connections = int(effective["max_connections"])
    if connections > descriptors:
        yield "warn", f"max_connections is {connections}, but 'ulimit -n' allows only {descriptors}: raise that limit"
    elif connections < _FEW_CONNECTIONS:
        yield "warn", f"max_connections is {connections}: for more, raise 'ulimit -n' or the setting"


class _Server:
    """State of the signal handlers. Python runs them in the main thread, which waits for the broker."""

    def __init__(self, given: Sequence[Given]) -> None:
        self._given = given
        self._core: _core.Broker | None = None
        self._sink: logs.StderrSink | None = None
        self._stops = 0

    def attach(self, core: _core.Broker, sink: logs.StderrSink) -> None:
        """Sets the started broker and its log; a stop signal that came earlier takes effect now."""
        self._core, self._sink = core, sink
        if self._stops:
            core.drain()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Installs the handlers for a `with` block, then restores the previous ones; main thread only, else a no-op."""
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
            signal.SIGTERM: self._on_stop,
            signal.SIGINT: self._on_stop,
            signal.SIGHUP: self._on_reload,
        }
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _on_stop(self, number: int, _: FrameType | None) -> None:
        self._stops += 1
        if self._core is None:
            return
        name = signal.Signals(number).name
        if self._stops == 1:
            self._core.announce("info", f"{name}: draining")
            self._core.drain()
        else:
            self._core.announce("warn", f"{name} again: stopping at once")
            self._core.stop()

    def _on_reload(self, _number: int, _: FrameType | None) -> None:
        if self._core is None or self._sink is None:
            return
        file = settings.last(self._given, "config")
        if file is None:
            self._core.announce("info", "SIGHUP: no settings file was named; nothing to reload")
            return
        try:
            collected = settings.collect(self._given, again=True)
            effective = {key: value for key, value, _ in settings.check(collected)}
            restart = self._core.reload(collected)
        except ConfigError as error:
            self._core.announce("error", f"SIGHUP: nothing changed: {error}")
            return
        self._sink.use(effective["log_format"])
        self._core.announce("info", f"SIGHUP: read {file[1]} again")
        if restart:
            self._core.announce("warn", f"these changed settings need a restart: {', '.join(restart)}")
