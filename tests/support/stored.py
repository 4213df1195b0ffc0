"""Brokers with a store on disk, one after the other on the same directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import frames
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fresh, until_receipt
from tests.support.wire import Wire

PERSISTENT: frames.Header = ("persistent", "true")
"""The header by which a message asks to be stored."""
STORES = ["file", "sqlite"]
"""The stores on disk, which promise the same."""


class Stored:
    """A directory, and the broker that uses it now.

    `settings` are those of each broker; a start may change some of them.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.settings = {"store": "file", "dir": directory, "drain": "1s", **settings}
        self._broker: BrokerProcess | None = None
        self._wires: list[Wire] = []
        self._logs: list[BrokerProcess] = []

    @property
    def broker(self) -> BrokerProcess:
        """The broker that uses the directory."""
        assert self._broker is not None, "not started"
        return self._broker

    def start(self, **settings: Any) -> BrokerProcess:
        """Starts a broker on the directory."""
        self._broker = BrokerProcess(**{**self.settings, **settings})
        self._logs.append(self._broker)
        return self._broker.start()

    def kill(self) -> None:
        """Ends the broker by SIGKILL, and forgets its clients."""
        self.broker.kill()
        self._discard()

    def end(self) -> None:
        """Ends the broker by SIGTERM, which must be an ordered end."""
        self._discard()
        self.broker.terminate()
        assert self.broker.wait() == 0, self.broker.log_text()

    def restart(self, **settings: Any) -> BrokerProcess:
        """Ends the broker by SIGKILL and starts another one on the directory."""
        self.kill()
        return self.start(**settings)

    def client(self, version: str | None = "1.2", *pairs: frames.Header, **headers: frames.HeaderValue) -> Wire:
        """A session of the broker that runs now."""
        wire = Wire(self.broker.port)
        self._wires.append(wire)
        wire.connect(version, *pairs, **headers)
        return wire

    def close(self) -> None:
        """Ends everything; no broker may have panicked or have found its log incomplete."""
        self._discard()
        for broker in self._logs:
            broker.stop()
        for broker in self._logs:
            assert "panicked" not in broker.log_text(), broker.log_text()
            assert "is damaged" not in broker.log_text(), broker.log_text()

    def _discard(self) -> None:
        for wire in self._wires:
            wire.discard()
        self._wires.clear()


Restart = Callable[[Stored], None]


def _by_signal(stored: Stored) -> None:
    stored.end()
    stored.start()


def _by_kill(stored: Stored) -> None:
    stored.restart()


RESTARTS: dict[str, Restart] = {"SIGKILL": _by_kill, "SIGTERM": _by_signal}
"""The ways in which a process is followed by another one."""


@contextlib.contextmanager
def in_flight(wire: Wire, destination: str, count: int, **headers: frames.HeaderValue) -> Iterator[list[Any]]:
    """Subscribes in the mode `client-individual`; yields the first `count` messages, then unsubscribes."""
    id = fresh("in-flight")
    wire.send(frames.subscribe(destination, id, **{"ack": "client-individual", **headers}))
    yield [wire.expect_message(subscription=id) for _ in range(count)]
    receipt = fresh("over")
    wire.send(frames.unsubscribe(id, receipt=receipt))
    assert until_receipt(wire, receipt) == []


def send_stored(wire: Wire, destination: str, *texts: str, **headers: frames.HeaderValue) -> None:
    """Sends persistent messages, each with a RECEIPT, and waits for all of these."""
    receipts = [fresh("stored") for _ in texts]
    wire.send(
        *(
            frames.send_counted(destination, text, PERSISTENT, receipt=receipt, **headers)
            for text, receipt in zip(texts, receipts, strict=True)
        )
    )
    for receipt in receipts:
        wire.expect_receipt(receipt)


def waiting(wire: Wire, queue: str) -> list[str]:
    """The bodies of what waits in a queue, in order; it all waits there again afterwards."""
    id, end = fresh("waiting"), fresh("the end of what waits")
    wire.send(frames.subscribe(queue, id, ack="client-individual", prefetch_count=0), frames.send(queue, end))
    found = []
    while (message := wire.expect_message(subscription=id)).text != end:
        found.append(message)
    receipt = fresh("seen")
    wire.send(frames.ack(id=message["ack"]), frames.unsubscribe(id, receipt=receipt))
    assert until_receipt(wire, receipt) == []
    return bodies(found)
