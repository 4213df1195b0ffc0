"""A broker in the mode of C stompica, and names for it."""

from __future__ import annotations

import pytest

from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess


@pytest.fixture
def compat(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with `compat=stompica`."""
    return shared_broker(compat="stompica")


@pytest.fixture
def name(topic: str) -> str:
    """A word that no other test uses."""
    return topic.rpartition("/")[2]
