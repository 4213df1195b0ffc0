"""Fixtures of the wire tests."""

from __future__ import annotations

import pytest

from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.wire import Wire


@pytest.fixture
def queue(topic: str) -> str:
    """A queue that no other test uses."""
    return "/queue/" + topic.removeprefix("/topic/")


@pytest.fixture
def destination(topic: str, kind: str) -> str:
    """A destination that no other test uses, of the kind by which the test is parametrised: its prefix."""
    return topic.replace("/topic/", kind)


@pytest.fixture
def subscriber(client: Clients, topic: str, version: str) -> Wire:
    """A client of the version by which the test is parametrised, with a subscription to `topic`."""
    wire = client(version)
    wire.subscribe(topic)
    return wire


@pytest.fixture
def publisher(client: Clients, version: str) -> Wire:
    """Another client of the version by which the test is parametrised."""
    return client(version)


@pytest.fixture
def quick(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that redelivers soon."""
    return shared_broker(redelivery_delay=2)


@pytest.fixture
def quick_client(client: Clients, quick: BrokerProcess, version: str) -> Wire:
    """A client, of the version by which the test is parametrised, of a broker that redelivers soon."""
    return client(version, to=quick)


@pytest.fixture
def impatient(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that requeues a message that is not acknowledged within 50 ms."""
    return shared_broker(redelivery_delay=2, ack_timeout=50, max_deliveries=1000)


@pytest.fixture
def strict(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that redelivers soon and gives up after three deliveries."""
    return shared_broker(redelivery_delay=2, max_deliveries=3)


@pytest.fixture
def patient(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that does not redeliver while the test runs."""
    return shared_broker(redelivery_delay="1h")


@pytest.fixture
def holding(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that keeps messages without subscriber for an hour."""
    return shared_broker(TTL="1h")


@pytest.fixture
def clean(shared_broker: StartBroker) -> BrokerProcess:
    """A broker without retained or stale messages: a subscriber to everything gets nothing old."""
    return shared_broker(max_retained=0)
