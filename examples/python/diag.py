"""What the programs diag_….py share: asking a broker about itself, in both ways of the C stompica.

docs/diag.md shows the frames.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from arrivals import arguments, connect, disconnect


def ask_by_frame(host: str, port: int, query: str) -> Any:
    """The answer to a DIAG frame, which needs no session: one header, named as the query, with JSON."""
    try:
        broker = socket.create_connection((host, port), timeout=10)
    except OSError:
        raise SystemExit(f"no broker answers at {host}:{port}") from None
    with broker:
        broker.sendall(f"DIAG\n\n{query}\0".encode())
        frame = b""
        while not frame.endswith(b"\0"):
            received = broker.recv(65536)
            if not received:
                raise SystemExit("the connection was lost")
            frame += received
    command, *headers = frame.decode().partition("\n\n")[0].split("\n")
    if command != "DIAG":
        raise SystemExit(frame.decode().rstrip("\0"))
    name, _, value = headers[0].partition(":")
    assert name == query
    return json.loads(value)


def ask_by_topic(options: Any, query: str) -> Mapping[str, str]:
    """The headers of the answer to a SEND, which comes to whoever is subscribed to its destination, as a MESSAGE."""
    connection, arrivals = connect(options)
    destination = f"DIAG/{query}"
    connection.subscribe(destination, id="1", headers={"receipt": "subscribed"})
    arrivals.receipt("subscribed")
    connection.send(destination, query)
    answer = arrivals.message(10)
    disconnect(connection, arrivals)
    headers: Mapping[str, str] = answer.headers
    return headers


def show(text: str, query: str, statistics: Mapping[str, str]) -> None:
    """Asks in both ways and prints a line for each; `statistics` is the name of each header by the name in JSON."""
    options = arguments(text).parse_args()
    by_frame = ask_by_frame(options.host, options.port, query)
    print("by frame:", *(f"{name}={by_frame[name]}" for name in statistics))
    by_topic = ask_by_topic(options, query)
    print("by topic:", *(f"{name}={by_topic[name]}" for name in statistics.values()))
