"""Subscribers that join at random numbers while messages are published get each one once, and no hole."""

from __future__ import annotations

import random
import threading

import pytest

from tests.support import frames
from tests.support.recorded import QUEUE, TOPIC, record, replay
from tests.support.stored import Stored
from tests.support.wire import Wire

TOTAL = 6000
BATCH = 50
READERS = 30


@pytest.mark.parametrize("destination", [TOPIC, QUEUE])
def test_joining_under_load(stored: Stored, destination: str) -> None:
    publisher = stored.client()
    record(publisher, destination, 1, BATCH)
    sent = [BATCH]
    stop = threading.Event()

    def publish() -> None:
        for first in range(BATCH + 1, TOTAL + 1, BATCH):
            publisher.send(*(frames.send(destination, str(number)) for number in range(first, first + BATCH)))
            sent[0] = first + BATCH - 1
            if stop.wait(0.002):
                return

    failures: list[BaseException] = []

    def read(wire: Wire, first: int) -> None:
        try:
            for number in range(first, TOTAL + 1):
                message = wire.expect_message(str(number))
                assert message["seq"] == str(number)
        except BaseException as failure:
            failures.append(failure)

    publishing = threading.Thread(target=publish)
    publishing.start()
    readers = []
    try:
        for _ in range(READERS):
            wire, first = stored.client(), random.randint(1, sent[0])
            replay(wire, destination, "r", f"seq={first}")
            readers.append(threading.Thread(target=read, args=(wire, first)))
            readers[-1].start()
        publishing.join()
        for reader in readers:
            reader.join()
    finally:
        stop.set()
    assert not failures, failures[0]
