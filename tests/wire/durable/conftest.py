"""Fixtures of the tests of durable subscriptions."""

from __future__ import annotations

import pytest

from tests.support.clients import Clients
from tests.support.durable import Durable


@pytest.fixture
def version() -> str:
    """The version of the clients, unless a test is parametrised by it."""
    return "1.2"


@pytest.fixture
def dialect() -> str:
    """The dialect of the durable subscription, unless a test is parametrised by it."""
    return "rabbitmq"


@pytest.fixture
def name(topic: str) -> str:
    """A subscription name that no other test uses."""
    return "d-" + topic.removeprefix("/topic/")


@pytest.fixture
def durable(client: Clients, dialect: str, version: str, topic: str, name: str) -> Durable:
    """A durable subscription to `topic` that does not exist yet."""
    return Durable(client, dialect, version, topic, name)
