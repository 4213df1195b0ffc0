"""`stompica diag [QUERY] [--watch [SECONDS]] [--address HOST:PORT] [--json]`."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from stompica.arguments import seconds
from stompica.diag.api import Diag
from stompica.diag.records import QUERIES, plain
from stompica.diag.remote import DEFAULT_PORT, REMOTE_INTERVAL_MIN_S, connect
from stompica.diag.stages import Stage
from stompica.diag.watch import INTERVAL_MAX_S, Watch
from stompica.tabular import table, text


def main(arguments: Sequence[str]) -> int:
    """Queries a running broker and prints the answer; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        with connect(options.address) as diag:
            if options.watch is None:
                _show(options.query, diag(options.query), options.json)
            else:
                _watch(diag, options)
    except KeyboardInterrupt:
        return 130 if options.watch is None else 0
    return 0


def _watch(diag: Diag, options: argparse.Namespace) -> None:
    with diag.watch(options.query, interval=options.watch) as watch, _ended_by_ctrl_c(watch):
        for record in watch:
            if not options.json:
                print(f"-- {datetime.now():%H:%M:%S}")
            _show(options.query, record, options.json)


@contextlib.contextmanager
def _ended_by_ctrl_c(watch: Watch[Any]) -> Iterator[None]:
    """The first Ctrl-C ends `watch`, a second one raises KeyboardInterrupt.

    An exception in the middle of `threading.Condition.wait` would leave the lock of the watch in an undefined state.
    """

    def end(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=watch.close).start()  # this thread may hold the locks that `close` takes

    former = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stompica diag",
        description="Queries a running broker, which answers only clients on the same machine.",
        epilog="docs/diag.md explains the numbers.",
    )
    parser.add_argument(
        "query", nargs="?", default="session", choices=QUERIES, metavar="QUERY", help=", ".join(QUERIES)
    )
    parser.add_argument(
        "--watch",
        type=seconds(REMOTE_INTERVAL_MIN_S, INTERVAL_MAX_S, "; a query goes in front of it"),
        nargs="?",
        const=1.0,
        metavar="SECONDS",
        help="repeat at this interval until Ctrl-C; default: 1 second",
    )
    parser.add_argument(
        "--address",
        default=f"127.0.0.1:{DEFAULT_PORT}",
        metavar="HOST:PORT",
        help=f"also stomp://… or ws://…; default: 127.0.0.1:{DEFAULT_PORT}",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each answer")
    return parser


def _show(query: str, record: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plain(record)))
    else:
        for line in render(query, record):
            print(line)
    sys.stdout.flush()


def render(query: str, record: Any) -> Iterator[str]:
    """Yields a record as readable lines: `name value`, or a table."""
    if query == "benchmark":
        yield from _stages(record.stages)
        return
    value = plain(record)
    if query == "store":
        del value["sync"]
        value |= {"sync_mean_ns": round(record.sync.mean_ns), "sync_p99_ns": record.sync.quantile_ns(0.99)}
    if isinstance(value, dict):
        width = max(map(len, value))
        for name, item in value.items():
            yield f"{name:<{width}}  {text(item)}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from table(value)
    elif isinstance(value, list):
        yield from map(text, value or ["(none)"])
    else:
        yield text(value)


def _stages(stages: dict[str, Stage]) -> Iterator[str]:
    rows = [
        {
            "stage": name,
            "passes": stage.count,
            "total_ms": round(stage.total_ns / 1e6, 1),
            "mean_ns": round(stage.mean_ns),
            "p50_ns": stage.quantile_ns(0.5),
            "p99_ns": stage.quantile_ns(0.99),
        }
        for name, stage in stages.items()
    ]
    yield from table(rows) if rows else ["(no timings yet: try again in a moment)"]
