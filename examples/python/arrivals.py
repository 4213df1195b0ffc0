"""Shared by the other examples: they connect, and wait for frames instead of using callbacks."""

from __future__ import annotations

import argparse
import contextlib
import queue
from collections.abc import Iterator
from typing import Any

import stomp


class Arrivals(stomp.ConnectionListener):
    """Passes frames from stomp.py's thread to the main thread; `None` means the end of the connection."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_error(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_disconnected(self) -> None:
        self.frames.put(None)

    def next(self, timeout: float | None = None) -> Any:
        """Returns the next MESSAGE or RECEIPT; exits if the broker sends ERROR or the connection is lost."""
        frame = self.frames.get(timeout=timeout)
        if frame is None:
            raise SystemExit("the connection was lost")
        if frame.cmd == "ERROR":
            raise SystemExit(f"{frame.headers['message']}\n{frame.body}")
        return frame

    def message(self, timeout: float | None = None) -> Any:
        """Returns the next MESSAGE; discards RECEIPTs before it."""
        while True:
            frame = self.next(timeout)
            if frame.cmd == "MESSAGE":
                return frame

    def receipt(self, name: str, timeout: float = 10.0) -> None:
        """Waits for this RECEIPT; keeps the MESSAGEs before it."""
        kept = []
        while True:
            frame = self.next(timeout)
            if frame.cmd == "RECEIPT" and frame.headers["receipt-id"] == name:
                break
            kept.append(frame)
        for frame in kept:
            self.frames.put(frame)


def connect(options: argparse.Namespace) -> tuple[Any, Arrivals]:
    """Returns a connection to the broker at `--host` and `--port`, and its arrivals."""
    arrivals = Arrivals()
    connection = stomp.Connection12([(options.host, options.port)], vhost=options.host, heartbeats=(10_000, 10_000))
    connection.set_listener("arrivals", arrivals)
    try:
        connection.connect(wait=True)
    except stomp.exception.ConnectFailedException:
        raise SystemExit(f"no broker answers at {options.host}:{options.port}") from None
    return connection, arrivals


@contextlib.contextmanager
def until_interrupted(arrivals: Arrivals, receipt: str) -> Iterator[None]:
    """Waits for the RECEIPT of SUBSCRIBE and prints its name; then Ctrl-C ends the block."""
    arrivals.receipt(receipt)
    print(receipt, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        yield


def disconnect(connection: Any, arrivals: Arrivals) -> None:
    """Disconnects in order: after the RECEIPT of DISCONNECT, everything sent before has taken effect."""
    connection.disconnect(receipt="bye")
    frame = None
    # stomp.py closes the connection at this RECEIPT, and reports the close before the RECEIPT.
    while frame is None or frame.cmd != "RECEIPT" or frame.headers["receipt-id"] != "bye":
        frame = arrivals.frames.get(timeout=10)


def arguments(text: str | None, destination: str | None = None) -> argparse.ArgumentParser:
    """Returns a parser with the options for the broker's address and, if there is a default, for a destination."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    if destination is not None:
        parser.add_argument("--destination", default=destination, help="default: %(default)s")
    return parser
