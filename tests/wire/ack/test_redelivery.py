"""Redelivery: its headers, its delay and its consumer.

See docs/behaviour.md, sections 6 and 7; docs/specification.md, items 68 and 71.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack, ack_and_wait, nack, nack_and_wait, prefetched
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, dead_letters, fill, left_in, numbered, shares, take, unsubscribe_and_wait
from tests.support.redelivery import deliver_one, expect_dead_letters, nack_repeatedly, wait_out_redelivery_delay

NUMBERS = numbered(20)


NACKED = [(version, mode) for version, mode in CLIENT_MODES if version != "1.0"]


LONG_MS = 10_000
"""A redelivery delay that is not over before a test ends."""


# -- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), NACKED)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "#"])
def test_a_redelivery_is_marked_and_counted(
    client: Clients, strict: BrokerProcess, destination: str, version: str, mode: str
) -> None:
    wire = client(version, to=strict)
    wire.subscribe(destination, "s", ack=mode)
    pairs = [("content-type", "text/x"), ("b", "1"), ("a", "2"), ("b", "3")]
    wire.send(frames.send(destination, "body", *pairs))
    first = wire.expect_message("body", redelivered=None, delivery_count=None)
    wire.send(nack(wire, first))
    second = wire.expect_message("body", redelivered="true", delivery_count="2")
    wire.send(nack(wire, second))
    third = wire.expect_message("body", redelivered="true", delivery_count="3")
    assert len({message["message-id"] for message in (first, second, third)}) == 1
    for message in (first, second, third):
        assert [pair for pair in message.headers if pair in pairs] == pairs
        assert (message["destination"], message["subscription"]) == (destination, "s")
        assert len(message.all("redelivered")) == len(message.all("delivery-count")) == (message is not first)
    if version == "1.2":
        assert len({message["ack"] for message in (first, second, third)}) == 3
    assert ack_and_wait(wire, third) == []
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_redelivery_after_a_loss_is_marked_in_every_version(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.send(queue, "x"))
    for count in (None, "2", "3"):
        wire.send(frames.subscribe(queue, "s", ack="client"))
        wire.expect_message("x", delivery_count=count, redelivered=None if count is None else "true")
        assert unsubscribe_and_wait(wire, "s") == []


def test_a_message_that_was_never_in_flight_is_not_marked(client: Clients, queue: str) -> None:
    """Only messages that were in flight are marked, not those that waited behind them."""
    wire, publisher = client(), client()
    prefetched(wire, publisher, queue, 2, of=4)
    assert unsubscribe_and_wait(wire, "s") == []
    assert [message.header("redelivered") for message in left_in(wire, queue)] == ["true", "true", None, None]


def test_redelivery_over_websocket_works_as_over_tcp(ws: OpenWebSocket, strict: BrokerProcess, queue: str) -> None:
    wire = ws("1.2", to=strict)
    nack_repeatedly(wire, deliver_one(wire, queue), 3)
    expect_dead_letters(wire, queue, "x")


def test_a_big_message_is_redelivered_whole(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire = client(to=strict)
    body = bytes(range(256)) * 8192
    wire.subscribe(queue, ack="client")
    wire.send(frames.send_counted(queue, body))
    wire.send(nack(wire, wire.expect_message(body)))
    wire.expect_message(body, redelivered="true")


# -- delay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
def test_a_message_in_its_delay_does_not_block_others(
    client: Clients, patient: BrokerProcess, queue: str, version: str
) -> None:
    wire, publisher = client(version, to=patient), client(to=patient)
    wire.subscribe(queue, ack="client-individual", prefetch_count=2)
    fill(publisher, queue, *NUMBERS[:5])
    wire.send(nack(wire, wire.expect_message("0")))
    for number in NUMBERS[1:5]:
        wire.send(ack(wire, wire.expect_message(number, redelivered=None)))
    fill(publisher, queue, *NUMBERS[5:8])
    take(wire, "5", "6", redelivered=None)
    wire.barrier(publisher)


def test_a_message_returns_to_its_old_place(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire, other = client(to=strict), client(to=strict)
    wire.subscribe(queue, ack="client-individual", prefetch_count=1)
    fill(other, queue, *NUMBERS[:5])
    wire.send(nack(wire, wire.expect_message("0")))
    message = wire.expect_message("1", redelivered=None)
    wait_out_redelivery_delay(other)
    for number, again in (("0", "true"), ("2", None), ("3", None), ("4", None)):
        wire.send(ack(wire, message))
        message = wire.expect_message(number, redelivered=again)
    assert ack_and_wait(wire, message) == []


def test_several_messages_return_in_their_order(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire, other = client(to=strict), client(to=strict)
    held = prefetched(wire, other, queue, 4, of=10, ack="client-individual")
    wire.send(*(nack(wire, held[at]) for at in (2, 0, 3, 1)))
    held = take(wire, *NUMBERS[4:8], redelivered=None)
    wait_out_redelivery_delay(other)
    for number in ("0", "1", "2", "3"):
        wire.send(ack(wire, held.pop(0)))
        held.append(wire.expect_message(number, redelivered="true"))
    wire.send(ack(wire, held.pop(0)))
    wire.expect_message("8", redelivered=None)


def test_the_delay_doubles_with_each_failure(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    """Two messages get a NACK at the same time. The one that got its second NACK is delivered later."""
    wire = client(to=shared_broker(redelivery_delay=100))
    wire.subscribe(queue, ack="client-individual")
    wire.send(frames.send(queue, "0"))
    wire.send(nack(wire, wire.expect_message("0")), frames.send(queue, "1"))
    once = wire.expect_message("1", redelivered=None)
    twice = wire.expect_message("0", delivery_count="2")
    wire.send(nack(wire, twice), nack(wire, once))
    wire.expect_message("1", delivery_count="2")
    wire.expect_message("0", delivery_count="3")


@pytest.mark.parametrize("loss", ["unsubscribe", *LOSSES])
def test_messages_of_a_lost_consumer_are_redelivered_at_once(
    client: Clients, patient: BrokerProcess, queue: str, loss: str
) -> None:
    wire, successor = client(to=patient), client(to=patient)
    deliver_one(wire, queue)
    successor.subscribe(queue, ack="client")
    if loss == "unsubscribe":
        assert unsubscribe_and_wait(wire, "s") == []
    else:
        LOSSES[loss](wire)
    successor.expect_message("x", redelivered="true")


def test_a_delay_goes_on_after_the_consumer_has_left(client: Clients, patient: BrokerProcess, queue: str) -> None:
    """The end of the consumer that sent the NACK does not shorten the delay."""
    wire, successor, watcher = client(to=patient), client(to=patient), client(to=patient)
    detector = LossDetector(wire, watcher)
    assert nack_and_wait(wire, deliver_one(wire, queue)) == []
    wire.reset()
    detector.wait()
    successor.subscribe(queue, ack="client")
    successor.barrier(watcher)


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_a_subscription_may_ask_for_a_longer_delay(client: Clients, strict: BrokerProcess, destination: str) -> None:
    wire, other = client(to=strict), client(to=strict)
    slow = deliver_one(wire, destination, redelivery_delay=LONG_MS)
    assert nack_and_wait(wire, slow) == []
    wait_out_redelivery_delay(other)
    wire.barrier(other)


def test_a_subscription_cannot_ask_for_a_shorter_delay(client: Clients, patient: BrokerProcess, queue: str) -> None:
    wire, other = client(to=patient), client(to=patient)
    assert nack_and_wait(wire, deliver_one(wire, queue, redelivery_delay=0)) == []
    other.subscribe(dead_letters(f"{queue}-2"), "clock")
    other.send(frames.send(f"{queue}-2", "tick", ("expiration", "100")))
    other.expect_message("tick")
    wire.barrier(other)


# -- choice of the consumer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_a_nacked_message_goes_to_another_consumer(
    client: Clients, strict: BrokerProcess, destination: str, topic: str, version: str
) -> None:
    wires = [client(version, to=strict) for _ in range(2)]
    publisher = client(to=strict)
    for wire in wires:
        wire.subscribe(topic, "end")
        wire.subscribe(destination, "s", ack="client-individual")
    for number in NUMBERS[:4]:
        publisher.send_and_wait(destination, number)
        found = shares(publisher, wires, topic, 1)
        holder = 0 if found[0] else 1
        (message,) = found[holder]
        assert found[1 - holder] == []
        wires[holder].send(nack(wires[holder], message))
        again = wires[1 - holder].expect_message(number, redelivered="true", delivery_count="2")
        wires[1 - holder].send(nack(wires[1 - holder], again))
        last = wires[holder].expect_message(number, redelivered="true", delivery_count="3")
        assert ack_and_wait(wires[holder], last) == []


@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_another_consumer_may_be_on_the_same_connection(
    client: Clients, strict: BrokerProcess, destination: str
) -> None:
    wire = client(to=strict)
    for id in "ab":
        wire.subscribe(destination, id, ack="client-individual")
    for number in NUMBERS[:6]:
        wire.send(frames.send(destination, number))
        first = wire.expect_message(number)
        wire.send(nack(wire, first))
        second = wire.expect_message(number, redelivered="true")
        assert {first["subscription"], second["subscription"]} == {"a", "b"}
        assert ack_and_wait(wire, second) == []


@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_another_consumer_may_have_subscribed_by_a_pattern(
    client: Clients, strict: BrokerProcess, destination: str
) -> None:
    wire, other = client(to=strict), client(to=strict)
    message = deliver_one(wire, f"{destination}/a")
    other.subscribe(f"{destination}/*", "p", ack="client")
    wire.send(nack(wire, message))
    again = other.expect_message("x", redelivered="true", subscription="p")
    assert ack_and_wait(other, again) == []
    wire.barrier(other)


def test_all_messages_nacked_by_one_consumer_go_to_the_other(
    client: Clients, strict: BrokerProcess, queue: str, topic: str
) -> None:
    wires = [client(to=strict) for _ in range(2)]
    for wire in wires:
        wire.subscribe(topic, "end")
        wire.subscribe(queue, "s", ack="client-individual")
    publisher = client(to=strict)
    fill(publisher, queue, *NUMBERS)
    refused, kept = shares(publisher, wires, topic, 20)
    assert len(refused) == len(kept) == 10
    wires[0].send(*(nack(wires[0], message) for message in refused))
    again = take(wires[1], *bodies(refused), redelivered="true")
    assert ack_and_wait(wires[1], *kept, *again) == []
    wires[0].barrier(publisher)


def test_a_lone_consumer_gets_the_message_again(client: Clients, strict: BrokerProcess, queue: str) -> None:
    wire, elsewhere = client(to=strict), client(to=strict)
    elsewhere.subscribe(f"{queue}-2", ack="client")
    message = deliver_one(wire, queue)
    wire.send(nack(wire, message))
    assert ack_and_wait(wire, wire.expect_message("x", redelivered="true")) == []
    elsewhere.barrier(wire)
