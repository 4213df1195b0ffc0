"""Answers requests: takes them from a queue and sends each answer to the request's `reply-to` destination.

python service.py --port 61613 --destination /queue/upper-case
"""

from __future__ import annotations

from typing import Any

from arrivals import Arrivals, arguments, connect, disconnect, until_interrupted


def serve(connection: Any, arrivals: Arrivals, count: int | None) -> None:
    """Serves until `count` requests are answered."""
    served = 0
    while served != count:
        request = arrivals.message()
        headers = {}
        # Lets the client match the answer with its request.
        if "correlation-id" in request.headers:
            headers["correlation-id"] = request.headers["correlation-id"]
        # The broker has replaced the client's temporary queue by a name that reaches it. If the client is gone, it is
        # no error.
        connection.send(request.headers["reply-to"], request.body.upper(), headers=headers)
        # Acknowledge only now: if the service dies before this point, another one gets the request.
        connection.ack(request.headers["ack"])
        served += 1


def main() -> None:
    parser = arguments(__doc__, "/queue/upper-case")
    parser.add_argument("--count", type=int, help="ends after this many requests (default: never)")
    options = parser.parse_args()

    connection, arrivals = connect(options)
    connection.subscribe(options.destination, id="1", ack="client-individual", headers={"receipt": "ready"})
    with until_interrupted(arrivals, "ready"):
        serve(connection, arrivals, options.count)
    disconnect(connection, arrivals)


if __name__ == "__main__":
    main()
