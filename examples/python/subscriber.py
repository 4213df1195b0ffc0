"""Prints what arrives at a destination, until `--count` messages have come or Ctrl-C is pressed.

python subscriber.py --port 61613 --destination '/topic/*' --count 10
"""

from __future__ import annotations

import argparse
import contextlib
import queue

import stomp


class Arrivals(stomp.ConnectionListener):
    """Passes frames from stomp.py's thread to the main thread; `None` means the end of the connection."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[stomp.utils.Frame | None] = queue.SimpleQueue()

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.frames.put(frame)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.frames.put(frame)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.frames.put(frame)

    def on_disconnected(self) -> None:
        self.frames.put(None)


def show(arrivals: Arrivals, count: int | None) -> None:
    """Prints messages until `count` of them came."""
    shown = 0
    while shown != count:
        frame = arrivals.frames.get()
        if frame is None:
            raise SystemExit("the connection was lost")
        if frame.cmd == "ERROR":
            raise SystemExit(f"{frame.headers['message']}\n{frame.body}")
        if frame.cmd == "RECEIPT":
            print("subscribed", flush=True)
        else:
            shown += 1
            print(f"{frame.headers['destination']}: {frame.body}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints what arrives at a destination.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--destination", default="/topic/demo", help="may be a pattern such as '/topic/*'")
    parser.add_argument("--count", type=int, help="ends after this many messages (default: never)")
    options = parser.parse_args()

    arrivals = Arrivals()
    connection = stomp.Connection12([(options.host, options.port)], vhost=options.host, heartbeats=(10_000, 10_000))
    connection.set_listener("arrivals", arrivals)
    try:
        connection.connect(wait=True)
    except stomp.exception.ConnectFailedException:
        raise SystemExit(f"no broker answers at {options.host}:{options.port}") from None
    connection.subscribe(options.destination, id="1", headers={"receipt": "subscribed"})
    with contextlib.suppress(KeyboardInterrupt):
        show(arrivals, options.count)
    connection.disconnect(receipt="bye")


if __name__ == "__main__":
    main()
