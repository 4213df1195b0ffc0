"""Types of the fixtures.

`client` is a `Clients`, `start_broker` and `shared_broker` are `StartBroker`, `ws` is an `OpenWebSocket`.
"""

from __future__ import annotations

from typing import Any, Protocol

from tests.support import frames
from tests.support.process import BrokerProcess
from tests.support.wire import TIMEOUT, Wire
from tests.support.ws import WebSocket


class StartBroker(Protocol):
    """Starts or finds a broker with these settings."""

    def __call__(self, **settings: Any) -> BrokerProcess: ...


class OpenWebSocket(Protocol):
    """Opens a WebSocket past its handshake; with a version, past CONNECTED too."""

    def __call__(self, version: str | None = "1.2", *, to: BrokerProcess | None = None) -> WebSocket: ...


class Clients:
    """Makes clients of the test's broker (or of `to`) and closes them all at the end."""

    def __init__(self, default: BrokerProcess) -> None:
        self._default = default
        self._open: list[Wire] = []

    def raw(
        self, to: BrokerProcess | None = None, *, timeout: float = TIMEOUT, receive_buffer: int | None = None
    ) -> Wire:
        """Opens a TCP connection, on which nothing is sent."""
        broker = to or self._default
        wire = Wire(broker.port, timeout=timeout, receive_buffer=receive_buffer)
        self._open.append(wire)
        return wire

    def __call__(
        self,
        version: str | None = "1.2",
        *pairs: frames.Header,
        to: BrokerProcess | None = None,
        timeout: float = TIMEOUT,
        **headers: frames.HeaderValue,
    ) -> Wire:
        """Opens a session of this version."""
        wire = self.raw(to, timeout=timeout)
        wire.connect(version, *pairs, **headers)
        return wire

    def close(self) -> None:
        """Closes every client."""
        for wire in self._open:
            wire.discard()
