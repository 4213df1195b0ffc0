"""Publishes numbered messages and waits until the broker has accepted all of them.

python publisher.py --port 61613 --destination /topic/demo --count 10
"""

from __future__ import annotations

import argparse
import contextlib
import queue

import stomp


class Answers(stomp.ConnectionListener):
    """Passes the broker's answers from stomp.py's thread to the main thread."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[stomp.utils.Frame | None] = queue.SimpleQueue()

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.frames.put(frame)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.frames.put(frame)

    def on_disconnected(self) -> None:
        self.frames.put(None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publishes numbered messages.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--destination", default="/topic/demo")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()

    answers = Answers()
    connection = stomp.Connection12([(options.host, options.port)], vhost=options.host, heartbeats=(10_000, 10_000))
    connection.set_listener("answers", answers)
    try:
        connection.connect(wait=True)
    except stomp.exception.ConnectFailedException:
        raise SystemExit(f"no broker answers at {options.host}:{options.port}") from None

    # When the broker refuses a SEND it sends an ERROR and closes, so that the next send may fail here.
    with contextlib.suppress(stomp.exception.NotConnectedException, OSError):
        for number in range(1, options.count + 1):
            # The RECEIPT of the last SEND also shows that all earlier ones were accepted.
            receipt = {"receipt": "last"} if number == options.count else {}
            connection.send(options.destination, f"message {number}", content_type="text/plain", headers=receipt)

    answer = answers.frames.get(timeout=10)
    if answer is None or answer.cmd != "RECEIPT":
        raise SystemExit(f"refused: {answer.headers['message'] if answer else 'the connection was lost'}")
    print(f"published {options.count} messages to {options.destination}")
    connection.disconnect(receipt="bye")


if __name__ == "__main__":
    main()
