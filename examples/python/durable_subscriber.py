"""Prints what is published on a topic, including what was published while this program did not run.

The broker keeps the subscription under its name until `--forget` deletes it.

python durable_subscriber.py --port 61613 --name alice --destination /topic/news --count 10
python durable_subscriber.py --port 61613 --name alice --destination /topic/news --forget
"""

from __future__ import annotations

from typing import Any

from arrivals import Arrivals, arguments, connect, disconnect, until_interrupted


def show(connection: Any, arrivals: Arrivals, count: int | None) -> None:
    """Prints and acknowledges messages until `count` of them came."""
    shown = 0
    while shown != count:
        message = arrivals.message()
        print(f"{message.headers['destination']}: {message.body}", flush=True)
        connection.ack(message.headers["ack"])
        shown += 1


def main() -> None:
    parser = arguments(__doc__, "/topic/news")
    parser.add_argument("--name", default="reader", help="name of the subscription in the broker")
    parser.add_argument("--count", type=int, help="ends after this many messages (default: never)")
    parser.add_argument("--forget", action="store_true", help="deletes the subscription instead of reading")
    options = parser.parse_args()

    connection, arrivals = connect(options)
    if options.forget:
        headers = {"durable": "true", "destination": options.destination, "receipt": "forgotten"}
        connection.unsubscribe(id=options.name, headers=headers)
        arrivals.receipt("forgotten")
        print("forgotten")
    else:
        headers = {"durable": "true", "receipt": "ready"}
        connection.subscribe(options.destination, id=options.name, ack="client-individual", headers=headers)
        with until_interrupted(arrivals, "ready"):
            show(connection, arrivals, options.count)
    # No UNSUBSCRIBE: a durable subscription continues to exist after DISCONNECT.
    disconnect(connection, arrivals)


if __name__ == "__main__":
    main()
