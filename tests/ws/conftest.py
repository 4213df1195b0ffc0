"""Fixtures of the WebSocket tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.support.process import BrokerProcess
from tests.support.ws import WebSocket


class OpenWebSocket(Protocol):
    """Opens a WebSocket past its handshake; with a version, past CONNECTED too."""

    def __call__(self, version: str | None = "1.2", *, to: BrokerProcess | None = None) -> WebSocket: ...


@pytest.fixture
def ws(broker: BrokerProcess) -> Iterator[OpenWebSocket]:
    """A factory of WebSockets to the shared broker, or to another one, all closed at the end."""
    opened: list[WebSocket] = []

    def open_one(version: str | None = "1.2", *, to: BrokerProcess | None = None) -> WebSocket:
        port = (to or broker).port
        client = WebSocket.open(port) if version is None else WebSocket.connected(port, version)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()
