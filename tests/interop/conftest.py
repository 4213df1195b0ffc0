"""The broker for the clients of other projects."""

from __future__ import annotations

import pytest

from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess

HEARTBEAT_MS = 100
"""The heart-beat interval that the broker offers both ways: short, so that each client's own setting decides."""


@pytest.fixture
def broker(shared_broker: StartBroker) -> BrokerProcess:
    """A broker whose heart-beats are frequent enough for a test; all other settings are the defaults."""
    return shared_broker(heartbeat=f"{HEARTBEAT_MS},{HEARTBEAT_MS}")
