"""The broker as the clients of other projects meet it."""

from __future__ import annotations

import pytest

from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess

HEARTBEAT_MS = 100
"""What the broker offers each way: little, so that each client's own wish sets the pace."""


@pytest.fixture
def broker(shared_broker: StartBroker) -> BrokerProcess:
    """A broker whose heart-beats can be seen in a test's time; all else as by default."""
    return shared_broker(heartbeat=f"{HEARTBEAT_MS},{HEARTBEAT_MS}")
