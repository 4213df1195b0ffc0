"""Prints what arrives at a destination, until `--count` messages have come or Ctrl-C is pressed.

python subscriber.py --port 61613 --destination '/topic/*' --count 10
"""

from __future__ import annotations

from arrivals import Arrivals, arguments, connect, until_interrupted


def show(arrivals: Arrivals, count: int | None) -> None:
    """Prints messages until `count` of them came."""
    shown = 0
    while shown != count:
        message = arrivals.message()
        print(f"{message.headers['destination']}: {message.body}", flush=True)
        shown += 1


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--destination", default="/topic/demo", help="may be a pattern such as '/topic/*'")
    parser.add_argument("--count", type=int, help="ends after this many messages (default: never)")
    options = parser.parse_args()

    connection, arrivals = connect(options)
    connection.subscribe(options.destination, id="1", headers={"receipt": "subscribed"})
    with until_interrupted(arrivals, "subscribed"):
        show(arrivals, options.count)
    connection.disconnect(receipt="bye")


if __name__ == "__main__":
    main()
