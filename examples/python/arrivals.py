"""What the longer examples share: connecting, and waiting for frames instead of being called back."""

from __future__ import annotations

import argparse
import queue
from typing import Any

import stomp


class Arrivals(stomp.ConnectionListener):
    """Hands frames from stomp.py's thread to ours; `None` stands for the end of the connection."""

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
        """The next MESSAGE or RECEIPT; ends the program when the broker says ERROR or the connection is lost."""
        frame = self.frames.get(timeout=timeout)
        if frame is None:
            raise SystemExit("the connection was lost")
        if frame.cmd == "ERROR":
            raise SystemExit(f"{frame.headers['message']}\n{frame.body}")
        return frame

    def message(self, timeout: float | None = None) -> Any:
        """The next MESSAGE; RECEIPTs before it are passed over."""
        while True:
            frame = self.next(timeout)
            if frame.cmd == "MESSAGE":
                return frame

    def receipt(self, name: str, timeout: float = 10.0) -> None:
        """Waits for this RECEIPT; MESSAGEs before it are kept."""
        kept = []
        while True:
            frame = self.next(timeout)
            if frame.cmd == "RECEIPT" and frame.headers["receipt-id"] == name:
                break
            kept.append(frame)
        for frame in kept:
            self.frames.put(frame)


def connect(options: argparse.Namespace) -> tuple[Any, Arrivals]:
    """A connection to the broker at `--host` and `--port`, and what arrives there."""
    arrivals = Arrivals()
    connection = stomp.Connection12([(options.host, options.port)], vhost=options.host, heartbeats=(10_000, 10_000))
    connection.set_listener("arrivals", arrivals)
    try:
        connection.connect(wait=True)
    except stomp.exception.ConnectFailedException:
        raise SystemExit(f"no broker answers at {options.host}:{options.port}") from None
    return connection, arrivals


def disconnect(connection: Any, arrivals: Arrivals) -> None:
    """Ends in order: when the RECEIPT of DISCONNECT is there, everything sent before has taken effect."""
    connection.disconnect(receipt="bye")
    frame = None
    # stomp.py closes when it sees this RECEIPT, and tells of the close before it tells of the RECEIPT.
    while frame is None or frame.cmd != "RECEIPT" or frame.headers["receipt-id"] != "bye":
        frame = arrivals.frames.get(timeout=10)


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A parser that knows where the broker is."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    return parser
