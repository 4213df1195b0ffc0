"""Answers requests: takes them from a queue and sends each answer where the request's `reply-to` says.

python service.py --port 61613 --destination /queue/upper-case
"""

from __future__ import annotations

import contextlib
from typing import Any

from arrivals import Arrivals, arguments, connect, disconnect


def serve(connection: Any, arrivals: Arrivals, count: int | None) -> None:
    """Answers until `count` requests are answered."""
    served = 0
    while served != count:
        request = arrivals.message()
        headers = {}
        # Tells the asker which of its questions this is the answer to.
        if "correlation-id" in request.headers:
            headers["correlation-id"] = request.headers["correlation-id"]
        # The broker has made the asker's temporary queue into a name that reaches it. Gone askers are no error.
        connection.send(request.headers["reply-to"], request.body.upper(), headers=headers)
        # Only now: a service that dies before this point leaves the request to another.
        connection.ack(request.headers["ack"])
        served += 1


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--destination", default="/queue/upper-case")
    parser.add_argument("--count", type=int, help="ends after so many requests (default: never)")
    options = parser.parse_args()

    connection, arrivals = connect(options)
    connection.subscribe(options.destination, id="1", ack="client-individual", headers={"receipt": "ready"})
    arrivals.receipt("ready")
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        serve(connection, arrivals, options.count)
    disconnect(connection, arrivals)


if __name__ == "__main__":
    main()
