"""Less usual cases of queues, as docs/delivery.md, docs/destinations.md and docs/protocol.md describe them."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.support import frames
from tests.support.acks import ack, ack_and_wait, nack, nack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.clock import wait_ms
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.queues import bodies, fill, left_in, numbered, take
from tests.support.wire import Wire

INDIVIDUAL = "client-individual"
LIFETIMES = ["expires", "ttl", "expiration"]


def held(wire: Wire, queue: str, *expected: str, **headers: frames.HeaderValue) -> list[frames.Header]:
    """Consumes these messages without acknowledging them; returns the headers that name the first one in ACK."""
    wire.send(frames.subscribe(queue, "held", **{"ack": INDIVIDUAL, **headers}))
    message, *_ = take(wire, *expected)
    return [("id", message["ack"])]


# -- transactions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outside", ["ACK", "NACK"])
@pytest.mark.parametrize("inside", ["ACK", "NACK"])
def test_a_delivery_settled_outside_makes_the_commit_fail(
    client: Clients, shared_broker: StartBroker, queue: str, inside: str, outside: str
) -> None:
    broker = shared_broker(redelivery_delay="1h")
    wire, other = client(to=broker), client(to=broker)
    fill(other, queue, "1")
    name = held(wire, queue, "1")
    wire.send(frames.begin("t"), frames.frame(inside, *name, transaction="t"))
    wire.send(frames.send(f"{queue}/out", "never", transaction="t"))
    wire.send(frames.frame(outside, *name, receipt="settled"))
    wire.expect_receipt("settled")
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-TX-LOST", receipt_id="c")
    assert left_in(other, f"{queue}/out") == []
    assert bodies(left_in(other, queue)) == [], "it was acknowledged, or waits for its delay"


@pytest.mark.parametrize("first", ["ACK", "NACK"])
def test_the_first_of_several_answers_to_one_delivery_counts(
    client: Clients, shared_broker: StartBroker, queue: str, first: str
) -> None:
    broker = shared_broker(redelivery_delay="2ms")
    wire, other = client(to=broker), client(to=broker)
    fill(other, queue, "1", "2")
    name = held(wire, queue, "1", "2")
    second = "NACK" if first == "ACK" else "ACK"
    wire.send(frames.begin("t"))
    for number, answer in enumerate((first, second, second)):
        wire.send(frames.frame(answer, *name, transaction="t", receipt=number))
        wire.expect_receipt(str(number))
    wire.send(frames.commit("t", receipt="c"), frames.unsubscribe("held", receipt="u"))
    came = []
    while (frame := wire.recv_frame()).header("receipt-id") != "u":
        came.append(frame.text if frame.command == "MESSAGE" else frame["receipt-id"])
    assert "c" in came
    other.send(frames.subscribe(queue, "again"))
    expected = ["2"] if first == "ACK" else ["1", "2"]
    assert sorted(message.text for message in [other.expect_message() for _ in expected]) == expected
    other.barrier()


def test_frames_behind_a_commit_wait_for_it(client: Clients, queue: str) -> None:
    """Messages sent behind a COMMIT come behind its own, although it asks all homes for room first."""
    wire, consumer = client(), client()
    queues = [f"{queue}/{number}" for number in range(8)]
    for name in queues:
        consumer.subscribe(name, name)
    for turn in range(10):
        wire.send(
            frames.begin("t"),
            *(frames.send(name, f"{turn} in", transaction="t") for name in queues),
            frames.commit("t", receipt="c"),
            *(frames.send(name, f"{turn} behind") for name in queues),
        )
        wire.expect_receipt("c")
        found = [consumer.expect_message() for _ in range(2 * len(queues))]
        for name in queues:
            assert bodies([each for each in found if each["subscription"] == name]) == [f"{turn} in", f"{turn} behind"]


def test_acks_count_against_the_size_of_transactions(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_transaction_size=64 * 3)
    wire, other = client(to=broker), client(to=broker)
    fill(other, queue, *"1234")
    wire.send(frames.subscribe(queue, "s", ack=INDIVIDUAL), frames.begin("t"))
    *fit, last = take(wire, *"1234")
    for message in fit:
        wire.send(ack(wire, message, transaction="t", receipt=message.text))
        wire.expect_receipt(message.text)
    wire.send(ack(wire, last, transaction="t", receipt="4"))
    wire.expect_error("E-TX-COUNT", receipt_id="4")
    other.send(frames.subscribe(queue, "again"))
    take(other, *"1234", redelivered="true")


# -- expiry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("soon", LIFETIMES)
def test_the_shortest_of_several_lifetimes_applies(client: Clients, queue: str, soon: str) -> None:
    wire, dlq = client(), client()
    dlq.subscribe(queue.replace("/queue/", "/queue/dlq/"))
    for number, names in enumerate(itertools.permutations(LIFETIMES)):
        wall_ms = int(time.time() * 1000)
        lifetimes = {"expires": wall_ms + 100_000, "ttl": 100_000, "expiration": 100_000}
        lifetimes[soon] = wall_ms + 30 if soon == "expires" else 30
        wire.send(frames.send(queue, str(number), *((name, str(lifetimes[name])) for name in names)))
        dlq.expect_message(str(number), dead_letter_reason="expired")
    assert left_in(wire, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_expires_0_does_not_cancel_another_lifetime(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    wire.send_and_wait(queue, "x", expires=0, ttl=20)
    wait_ms(wire, 60)
    assert left_in(wire, queue) == []


# -- dead letters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
def test_a_dead_letter_begins_with_three_headers_of_its_own(
    client: Clients, shared_broker: StartBroker, queue: str, version: str
) -> None:
    broker = shared_broker(max_deliveries=1)
    wire, dlq = client(version, to=broker), client(version, to=broker)
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("content-type", "text/x")]
    wire.send_and_wait(queue, b"\0body\0", *pairs)
    wire.send(frames.subscribe(queue, "s", ack=INDIVIDUAL))
    message = wire.expect_message(b"\0body\0")
    assert nack_and_wait(wire, message) == []
    dlq.send(frames.subscribe(queue.replace("/queue/", "/queue/dlq/")))
    dead = dlq.expect_message(b"\0body\0", redelivered=None)
    assert dead["message-id"] == message["message-id"]
    told = [("dead-letter-reason", "max-deliveries"), ("original-destination", queue), ("delivery-count", "1")]
    assert [pair for pair in dead.headers if pair in told + pairs] == told + pairs


def test_dead_letters_of_a_temporary_queue_use_its_full_name(client: Clients, shared_broker: StartBroker) -> None:
    broker = shared_broker(max_deliveries=1)
    owner, other = client(to=broker), client(to=broker)
    owner.subscribe("/temp-queue/x", "t", ack=INDIVIDUAL)
    owner.send(frames.send("/temp-queue/x", "x", reply_to="/temp-queue/x"))
    message = owner.expect_message("x")
    address = message["reply-to"]
    assert nack_and_wait(owner, message) == []
    other.send(frames.subscribe(f"/queue/dlq{address}"))
    other.expect_message("x", original_destination=address, dead_letter_reason="max-deliveries")


# -- durable subscriptions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "client"])
def test_a_durable_subscription_can_be_ended_while_another_holds_it(client: Clients, topic: str, mode: str) -> None:
    """The holder gets nothing more, may still acknowledge, and is not disconnected."""
    holder, other, publisher = client(), client(), client()
    name = f"d{topic}"
    holder.subscribe(topic, name, durable="true", ack=mode)
    publisher.send(frames.send(topic, "before"))
    message = holder.expect_message("before")
    other.send(frames.unsubscribe(name, durable="true", receipt="ended"))
    other.expect_receipt("ended")
    publisher.send_and_wait(topic, "never")
    if mode == "client":
        assert ack_and_wait(holder, message) == []
    holder.barrier(publisher)
    other.send(frames.unsubscribe(name, durable="true", receipt="again"))
    other.expect_error("E-SUB-UNKNOWN", receipt_id="again")


# -- late acknowledgements -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
def test_late_acks_are_recognised_after_many_deliveries(client: Clients, queue: str, version: str) -> None:
    """Of ten thousand requeued deliveries the first and the last get a late ACK and a late NACK."""
    wire, publisher = client(version), client()
    numbers = numbered(1000)
    fill(publisher, queue, *numbers)
    taken = []
    for _ in range(10):
        wire.send(frames.subscribe(queue, "s", ack="client"))
        messages = take(wire, *numbers)
        taken += [messages[0], messages[-1]]
        wire.send(frames.unsubscribe("s", receipt="u"))
        wire.expect_receipt("u")
    assert ack_and_wait(wire, *taken) == []
    wire.send(*(nack(wire, message) for message in taken))
    wire.barrier()
    assert bodies(left_in(publisher, queue)) == numbers
