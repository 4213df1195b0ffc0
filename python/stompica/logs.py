"""Carries the broker's log records to Python's `logging` or to stderr.

The broker queues records and never waits; one daemon thread takes them in batches. If stderr is not read, the queue
fills, and the broker drops and counts records; logging never blocks it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TypeAlias

from stompica import _core

Record: TypeAlias = tuple[float, str, str, list[tuple[str, str]]]
"""Seconds since the epoch, level, text, fields."""

Sink: TypeAlias = Callable[[Sequence[Record]], None]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_POLL_SECONDS = 1.0
# A pipe that polls as writable takes at least this much without blocking: 4096 on Linux, POSIX promises 512.
_PIECE = getattr(select, "PIPE_BUF", 512)

logger = logging.getLogger("stompica")
logger.addHandler(logging.NullHandler())


def open_standard_streams() -> None:
    """Opens the null device for each standard stream that is closed (`2>&-`).

    Otherwise the next socket gets the stream's number: the log would be written to it, and `print` would fail.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def tell(line: str) -> None:
    """Writes a line to stderr. A closed stderr causes no error, neither now nor when Python flushes it at exit."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except AttributeError:
        pass  # there is no stderr
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class Dispatcher:
    """The thread that passes a broker's records to a sink; it ends with the broker's log."""

    def __init__(self, core: _core.Broker, sink: Sink) -> None:
        self._core = core
        self._thread = threading.Thread(target=_dispatch, args=(core, sink), name="stompica-log", daemon=True)
        self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        """Ends the log and waits up to `timeout` seconds until its last records are passed on. Idempotent."""
        self._core.close_logs()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)


def _dispatch(core: _core.Broker, sink: Sink) -> None:
    while (records := core.poll_logs(_POLL_SECONDS)) is not None:
        if records:
            sink(records)


def logging_sink(target: logging.Logger) -> Sink:
    """Returns a sink that passes records to a logger; the fields are in the text, and as a dictionary in `fields`.

    If a handler or filter raises, only the current record is lost.
    """

    def sink(records: Sequence[Record]) -> None:
        for record in records:
            try:
                _log(target, record)
            except BaseException:  # SystemExit too: it would end the thread, and the following records would be lost
                _report(target, record)

    return sink


def _log(target: logging.Logger, record: Record) -> None:
    time, level, text, fields = record
    number = _LEVELS[level]
    if not target.isEnabledFor(number):
        return
    message, extra = one_line(_with_fields(text, fields)), {"fields": dict(fields)}
    made = target.makeRecord(target.name, number, "stompica", 0, message, (), None, extra=extra)
    made.created, made.msecs = time, (time % 1) * 1000
    target.handle(made)


def _report(target: logging.Logger, record: Record) -> None:
    """Reports what a handler or filter raised on stderr, as logging does (`logging.raiseExceptions`)."""
    _, level, text, fields = record
    plain = logging.LogRecord(target.name, _LEVELS[level], "stompica", 0, _with_fields(text, fields), (), None)
    with contextlib.suppress(Exception):  # stderr may be closed
        logging.Handler().handleError(plain)


class StderrSink:
    """Prints records, as `text` or `json`; stops permanently once the descriptor is closed."""

    def __init__(self, log_format: str, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._closed = False
        self.use(log_format)

    def use(self, log_format: str) -> None:
        """Sets the format, from the next record on. Any thread may call this."""
        self._render = render_json if log_format == "json" else render_text

    def __call__(self, records: Sequence[Record]) -> None:
        """Prints the records, one line each."""
        for record in records:
            line = (self._render(record) + "\n").encode("utf-8", "replace")
            self._closed = self._closed or not _write(self._descriptor, line)


def render_text(record: Record) -> str:
    """`2025-01-31T12:00:00.000Z INFO  text key=value`, always one line."""
    time, level, text, fields = record
    return one_line(f"{_timestamp(time)} {level.upper():<5} {_with_fields(text, fields)}")


def render_json(record: Record) -> str:
    """One JSON object: time, level, message, and the fields; what is not printable is escaped as in `one_line`."""
    time, level, text, fields = record
    line = json.dumps({"time": _timestamp(time), "level": level, "message": text, **dict(fields)}, ensure_ascii=False)
    return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def _timestamp(time: float) -> str:
    return datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _with_fields(text: str, fields: Sequence[tuple[str, str]]) -> str:
    return " ".join([text, *(f"{key}={value}" for key, value in fields)])


def one_line(text: str) -> str:
    """Escapes control characters, so that a client can't forge a log line by the name of a destination."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write(descriptor: int, line: bytes) -> bool:
    """Writes a line; returns false if the descriptor is closed. Waits for a slow reader, in this thread only."""
    rest = memoryview(line)
    while rest:
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
            rest = rest[os.write(descriptor, rest[:_PIECE]) :]
        except BlockingIOError:
            continue
        except OSError:
            return False
    return True
