"""Fixtures of the tests of expiry."""

from __future__ import annotations

import pytest

from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess


@pytest.fixture
def brief(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that keeps messages without subscriber for 100 ms."""
    return shared_broker(TTL=100)
