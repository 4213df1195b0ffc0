"""Publishes numbered messages and waits until the broker has accepted all of them.

python publisher.py --port 61613 --destination /topic/demo --count 10
"""

from __future__ import annotations

import contextlib

import stomp
from arrivals import arguments, connect


def main() -> None:
    parser = arguments(__doc__, "/topic/demo")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()

    connection, arrivals = connect(options)
    # When the broker refuses a SEND it sends an ERROR and closes, so that the next send may fail here.
    with contextlib.suppress(stomp.exception.NotConnectedException, OSError):
        for number in range(1, options.count + 1):
            # The RECEIPT of the last SEND also shows that all earlier ones were accepted.
            receipt = {"receipt": "last"} if number == options.count else {}
            connection.send(options.destination, f"message {number}", content_type="text/plain", headers=receipt)

    answer = arrivals.frames.get(timeout=10)
    if answer is None or answer.cmd != "RECEIPT":
        raise SystemExit(f"refused: {answer.headers['message'] if answer else 'the connection was lost'}")
    print(f"published {options.count} messages to {options.destination}")
    connection.disconnect(receipt="bye")


if __name__ == "__main__":
    main()
