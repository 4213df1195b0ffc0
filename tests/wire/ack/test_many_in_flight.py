"""ACKs while very many deliveries are in flight: each is found without a search (STOMP 1.1 "ACK")."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import shards_sum
from tests.support.parser import Frame

IN_FLIGHT = 20_000
AT_ONCE = 1000


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_newest_of_many_is_acknowledged_as_cheaply_as_the_oldest(
    client: Clients, start_broker: StartBroker, queue: str, version: str
) -> None:
    broker = start_broker()
    watcher, wire = client(to=broker), client(version, to=broker, timeout=30)
    wire.subscribe(queue, "s", ack="client-individual", prefetch_count=0)
    for _ in range(0, IN_FLIGHT, AT_ONCE):
        wire.send(*(frames.send(queue, "x") for _ in range(AT_ONCE)))
    held = [wire.expect_message("x") for _ in range(IN_FLIGHT)]

    def cost(messages: list[Frame]) -> int:
        """The processor time of the broker's threads in microseconds."""
        before = shards_sum(watcher, "cpu_us")
        assert ack_and_wait(wire, *messages) == []
        return shards_sum(watcher, "cpu_us") - before

    oldest, newest = cost(held[:AT_ONCE]), cost(held[-AT_ONCE:])
    assert newest < 5 * oldest + 5000, f"{newest} µs for the newest, {oldest} µs for the oldest"


def test_an_ack_by_message_id_settles_its_delivery_alone(client: Clients, queue: str) -> None:
    wire = client("1.1")
    wire.subscribe(queue, "s", ack="client-individual")
    wire.send(*(frames.send(queue, str(number)) for number in range(5)))
    held = [wire.expect_message(str(number)) for number in range(5)]
    assert ack_and_wait(wire, held[3]) == []
    wire.send(frames.ack(("subscription", "s"), ("message-id", held[3]["message-id"])))
    assert wire.expect_error()["code"] == "E-ACK-UNKNOWN"
