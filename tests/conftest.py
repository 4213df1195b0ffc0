"""Fixtures of the functional suite: brokers as processes, raw clients, topics that no other test uses.

Every test that uses a broker runs twice, with `writers=1` and with `writers=4`.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.process import BrokerProcess
from tests.support.stored import STORES
from tests.support.ws import WebSocket

_names = itertools.count()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Gives parameters of bytes a number: they may be long or random, and ids must not differ between processes."""
    return argname if isinstance(val, bytes) else None


def pytest_configure() -> None:
    """Lets Ctrl-C reach the processes that tests start: a shell in the background makes its children ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives a time limit to every test without one, so that nothing hangs."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(120))


class _Pool:
    """The shared brokers with one number of writers, one for each set of settings."""

    def __init__(self, writers: int) -> None:
        self.writers = writers
        self._brokers: dict[tuple[tuple[str, str], ...], BrokerProcess] = {}

    def get(self, **settings: Any) -> BrokerProcess:
        settings = {"writers": self.writers, **settings}
        key = tuple(sorted((name, str(value)) for name, value in settings.items()))
        broker = self._brokers.get(key)
        if broker is None or not broker.alive:
            broker = BrokerProcess(**settings).start()
            self._brokers[key] = broker
        return broker

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.stop()


def _healthy(broker: BrokerProcess) -> None:
    """Fails a test that killed the broker or made a shard panic."""
    assert broker.alive, f"the broker died:\n{broker.log_text()}"
    assert "panicked" not in broker.log_text(), broker.log_text()


@pytest.fixture(scope="session", params=[1, 4], ids=["writers1", "writers4"])
def writers(request: pytest.FixtureRequest) -> int:
    """The number of shards; the whole suite runs with each."""
    number: int = request.param
    return number


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """A store on disk; they promise the same, so a test that takes this runs with each."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def _pool(writers: int) -> Iterator[_Pool]:
    pool = _Pool(writers)
    yield pool
    pool.close()


@pytest.fixture
def broker(_pool: _Pool) -> Iterator[BrokerProcess]:
    """The broker with default settings, shared by all tests."""
    broker = _pool.get()
    yield broker
    _healthy(broker)


@pytest.fixture
def shared_broker(_pool: _Pool) -> Iterator[StartBroker]:
    """A factory: the broker with these settings, shared by all tests that ask for the same ones."""
    used: list[BrokerProcess] = []

    def find(**settings: Any) -> BrokerProcess:
        used.append(_pool.get(**settings))
        return used[-1]

    yield find
    for broker in used:
        _healthy(broker)


@pytest.fixture
def start_broker(writers: int) -> Iterator[StartBroker]:
    """A factory: a broker for this test alone, stopped at its end. The test may stop or kill it itself.

    It drains for a second at most: many tests leave clients behind that never read.
    """
    started: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        process = BrokerProcess(**{"writers": writers, "drain": "1s", **settings})
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.stop()
    for process in started:
        assert "panicked" not in process.log_text(), process.log_text()


@pytest.fixture
def client(broker: BrokerProcess, start_broker: StartBroker) -> Iterator[Clients]:
    """Makes raw clients: `client()` is a connected 1.2 session, `client.raw()` a bare connection.

    It depends on `start_broker` only to be torn down before it: a broker that stops waits for clients that stay.
    """
    clients = Clients(broker)
    yield clients
    clients.close()


@pytest.fixture
def ws(broker: BrokerProcess) -> Iterator[OpenWebSocket]:
    """A factory of WebSockets to the shared broker, or to another one, all closed at the end."""
    opened: list[WebSocket] = []

    def open_one(version: str | None = "1.2", *, to: BrokerProcess | None = None) -> WebSocket:
        port = (to or broker).port
        opened.append(WebSocket.open(port) if version is None else WebSocket.connected(port, version))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"/topic/t{next(_names)}"
