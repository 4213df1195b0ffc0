"""Fixtures of the wire tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess
from tests.support.ws import WebSocket


class OpenWebSocket(Protocol):
    """Opens a WebSocket up to CONNECTED."""

    def __call__(self, version: str = "1.2", *, to: BrokerProcess | None = None) -> WebSocket: ...


@pytest.fixture
def queue(topic: str) -> str:
    """A queue that no other test uses."""
    return "/queue/" + topic.removeprefix("/topic/")


@pytest.fixture
def ws(broker: BrokerProcess) -> Iterator[OpenWebSocket]:
    """A factory of WebSockets to the shared broker, or to another one, all closed at the end."""
    opened: list[WebSocket] = []

    def open_one(version: str = "1.2", *, to: BrokerProcess | None = None) -> WebSocket:
        opened.append(WebSocket.connected((to or broker).port, version))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def quick(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that redelivers soon."""
    return shared_broker(redelivery_delay=2)


@pytest.fixture
def impatient(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that takes back what is not acknowledged in 50 ms."""
    return shared_broker(redelivery_delay=2, ack_timeout=50, max_deliveries=1000)


@pytest.fixture
def strict(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that redelivers soon and gives up after three deliveries."""
    return shared_broker(redelivery_delay=2, max_deliveries=3)


@pytest.fixture
def patient(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that does not redeliver while the test runs."""
    return shared_broker(redelivery_delay="1h")
