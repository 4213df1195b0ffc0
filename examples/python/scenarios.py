"""Four load scenarios; each one fails if a message is lost or delivered twice.

python -m stompica port=61613 TTL=60000 &
python scenarios.py --port 61613 one-to-one --clients 800
python scenarios.py --port 61613 many-to-one --count 1000 --pause 5
python scenarios.py --port 61613 workers --clients 10 --count 1000
python scenarios.py --port 61613 reconnect --count 100

The first two need a broker that keeps messages without subscribers: its `TTL`, in milliseconds, must be longer than the
pause.
"""

from __future__ import annotations

import argparse
import queue
import time
import uuid
from collections import Counter
from typing import Any

from arrivals import Arrivals, arguments, connect, disconnect

TTL_MS = 60_000
"""How long the broker keeps messages that wait for a subscriber; or twice the pause, if that is longer."""


def take(options: argparse.Namespace, arrivals: Arrivals) -> Any:
    """Returns the body of the next MESSAGE."""
    try:
        return arrivals.message(options.timeout).body
    except queue.Empty:
        raise SystemExit(f"lost: no message within {options.timeout:g} s{hint(options)}") from None


def hint(options: argparse.Namespace) -> str:
    """Returns a hint for the first two scenarios, which fail with a broker that keeps no messages."""
    if options.scenario not in ("one-to-one", "many-to-one"):
        return ""
    ttl_ms = max(TTL_MS, round(2000 * options.pause))
    return (
        f"; {options.scenario} needs a broker that holds messages until a client subscribes: "
        f"python -m stompica port={options.port} TTL={ttl_ms}"
    )


def one_to_one(options: argparse.Namespace, name: str) -> str:
    """Each client sends to its own destination, then subscribes to it and gets the message."""
    clients = [connect(options) for _ in range(options.clients)]
    for number, (connection, _) in enumerate(clients):
        connection.send(f"/topic/{name}/{number}", f"hello {number}")
    for number, (connection, _) in enumerate(clients):
        connection.subscribe(f"/topic/{name}/{number}", id="1")
    for number, (connection, arrivals) in enumerate(clients):
        assert take(options, arrivals) == f"hello {number}"
        disconnect(connection, arrivals)
    return f"{options.clients} clients found their messages"


def many_to_one(options: argparse.Namespace, name: str) -> str:
    """Many messages to one destination; the only subscriber comes later and gets all of them in order."""
    connection, arrivals = connect(options)
    for number in range(options.count):
        receipt = {"receipt": "last"} if number == options.count - 1 else {}
        connection.send(f"/topic/{name}", str(number), headers=receipt)
    arrivals.receipt("last")
    time.sleep(options.pause)
    connection.subscribe(f"/topic/{name}", id="1")
    for number in range(options.count):
        assert take(options, arrivals) == str(number), "not the next message"
    disconnect(connection, arrivals)
    return f"{options.count} messages waited {options.pause:g} s"


def workers(options: argparse.Namespace, name: str) -> str:
    """Messages to a worker topic: each goes to one of the workers, which share them evenly."""
    clients = [connect(options) for _ in range(options.clients)]
    for connection, arrivals in clients:
        connection.subscribe(f"#{name}", id="1", headers={"receipt": "ready"})
        arrivals.receipt("ready")
    publisher, answers = connect(options)
    for number in range(options.count):
        publisher.send(f"#{name}", str(number))
    bodies: Counter[str] = Counter()
    for _, arrivals in clients:
        bodies.update(take(options, arrivals) for _ in range(options.count // options.clients))
    assert max(bodies.values()) == 1, "a message came twice"
    for connection, arrivals in [*clients, (publisher, answers)]:
        disconnect(connection, arrivals)
    return f"{options.clients} workers did {len(bodies)} jobs, each the same number"


def reconnect(options: argparse.Namespace, name: str) -> str:
    """A listener connects, receives one message and disconnects, again and again."""
    publisher, answers = connect(options)
    for number in range(options.count):
        connection, arrivals = connect(options)
        connection.subscribe(f"/topic/{name}", id="1", headers={"receipt": "ready"})
        arrivals.receipt("ready")
        publisher.send(f"/topic/{name}", str(number))
        assert take(options, arrivals) == str(number), "not the message just sent"
        disconnect(connection, arrivals)
    disconnect(publisher, answers)
    return f"a listener connected {options.count} times and received {options.count} messages"


SCENARIOS = {"one-to-one": one_to_one, "many-to-one": many_to_one, "workers": workers, "reconnect": reconnect}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--clients", type=int, default=10, help="connections of one-to-one and workers")
    parser.add_argument("--count", type=int, default=1000, help="messages, or reconnections")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds until many-to-one's subscriber comes")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds until a message counts as lost")
    options = parser.parse_args()
    print(SCENARIOS[options.scenario](options, f"scenario-{uuid.uuid4().hex}"))


if __name__ == "__main__":
    main()
