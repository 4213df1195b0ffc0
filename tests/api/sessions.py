"""A session with a broker in this process."""

from __future__ import annotations

import socket

from stompica import Broker


def connect(broker: Broker) -> socket.socket:
    """Returns a connected 1.2 session."""
    client = socket.create_connection(broker.address, timeout=20)
    client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    assert client.recv(4096).startswith(b"CONNECTED")
    return client
