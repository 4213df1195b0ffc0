"""Shared by the programs diag_….py: they query a broker's statistics, in both ways of C stompica.

docs/diag.md shows the frames.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from arrivals import arguments, connect, disconnect


def query_by_frame(host: str, port: int, query: str) -> Any:
    """Returns the answer to a DIAG frame, which needs no session: one header with the name of the query, in JSON."""
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


def query_by_topic(options: Any, query: str) -> Mapping[str, str]:
    """Sends the query to a destination; the answer comes as headers of a MESSAGE to its subscribers."""
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
    """Queries in both ways and prints a line for each; `statistics` maps each name in JSON to the header's name."""
    options = arguments(text).parse_args()
    by_frame = query_by_frame(options.host, options.port, query)
    print("by frame:", *(f"{name}={by_frame[name]}" for name in statistics))
    by_topic = query_by_topic(options, query)
    print("by topic:", *(f"{name}={by_topic[name]}" for name in statistics.values()))
