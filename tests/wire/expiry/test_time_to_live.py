"""The lifetime of a message: `expires`, `ttl` and `expiration`; docs/behaviour.md, sections 1, 5 and 7."""

from __future__ import annotations

import itertools

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.clock import wait_ms
from tests.support.expiry import EXPIRY_HEADERS, epoch_ms, lifetime
from tests.support.frames import VERSIONS
from tests.support.queues import (
    bodies,
    dead_letters,
    fill,
    left_in,
    numbered,
    unsubscribe_and_wait,
    until_receipt,
)

NUMBERS = numbered(10)
BAD = ["abc", "-1", "1.5", "1e3", "0x10", "5 ", "5s", "99999999999999999999999", "٣"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("header", EXPIRY_HEADERS)
def test_a_timer_dead_letters_expired_messages(client: Clients, queue: str, version: str, header: str) -> None:
    wire = client(version)
    name = queue.removeprefix("/queue/")
    wire.subscribe(f"/queue/dlq/{name}")
    wire.send(frames.send(queue, "x", lifetime(header, 60), ("k", "v")))
    dead = wire.expect_message("x", destination=f"/queue/dlq/{name}", k="v")
    assert (dead["dead-letter-reason"], dead["original-destination"]) == ("expired", queue)


@pytest.mark.parametrize("header", EXPIRY_HEADERS)
def test_an_expired_message_is_not_delivered_and_others_keep_their_order(
    client: Clients, queue: str, header: str
) -> None:
    wire = client()
    expiring = lifetime(header, 100)
    for number in NUMBERS:
        pairs = [expiring] if int(number) % 3 == 0 else []
        wire.send(frames.send(queue, number, *pairs))
    wait_ms(wire, 200)
    assert bodies(left_in(wire, queue)) == ["1", "2", "4", "5", "7", "8"]
    name = queue.removeprefix("/queue/")
    assert sorted(bodies(left_in(wire, f"/queue/dlq/{name}"))) == ["0", "3", "6", "9"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("header", EXPIRY_HEADERS)
def test_messages_keep_their_expiry_header(client: Clients, topic: str, queue: str, version: str, header: str) -> None:
    wire, publisher = client(version), client(version)
    _, value = pair = lifetime(header, 100_000)
    publisher.send_and_wait(queue, "x", pair)
    wire.send(frames.subscribe(queue, "queue"))
    assert wire.expect_message("x")[header] == value
    wire.subscribe(topic, "topic")
    publisher.send(frames.send(topic, "y", pair))
    assert wire.expect_message("y")[header] == value


@pytest.mark.parametrize("version", VERSIONS)
def test_expires_0_means_never(client: Clients, topic: str, queue: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(topic, "topic")
    wire.send(frames.send(topic, "x", expires="0"))
    wire.expect_message("x")
    fill(wire, queue, "other")
    wire.send_and_wait(queue, "y", expires="0")
    assert bodies(left_in(wire, queue)) == ["other", "y"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_expired_on_arrival_is_not_delivered(client: Clients, topic: str, queue: str, version: str) -> None:
    wire = client(version)
    name = queue.removeprefix("/queue/")
    wire.subscribe(topic, "topic")
    wire.send_and_wait(topic, "never", expires="1")
    wire.barrier()
    wire.subscribe(queue, "queue")
    wire.subscribe(f"/queue/dlq/{name}", "dead")
    wire.send(frames.send(queue, "never", expires=str(epoch_ms(-5000)), receipt="r"))
    frame, receipt = sorted((wire.recv_frame(), wire.recv_frame()), key=lambda frame: frame.command)
    assert (receipt.command, receipt["receipt-id"]) == ("RECEIPT", "r")
    assert (frame.text, frame["subscription"], frame["dead-letter-reason"]) == ("never", "dead", "expired")
    wire.send(frames.send(queue, "end"))
    wire.expect_message("end", subscription="queue")


def test_a_dead_letter_does_not_expire_again(client: Clients, queue: str) -> None:
    wire = client()
    wire.send_and_wait(queue, "x", ttl=20)
    wait_ms(wire, 200)
    name = queue.removeprefix("/queue/")
    (dead,) = left_in(wire, f"/queue/dlq/{name}")
    assert (dead.text, dead["original-destination"]) == ("x", queue)


@pytest.mark.parametrize("header", EXPIRY_HEADERS)
def test_messages_for_an_inactive_durable_subscriber_expire(client: Clients, topic: str, header: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(topic, "durable", durable="true")
    assert unsubscribe_and_wait(wire, "durable") == []
    publisher.send_and_wait(topic, "expires", lifetime(header, 100))
    publisher.send_and_wait(topic, "stays")
    wait_ms(publisher, 200)
    wire.send(frames.subscribe(topic, "durable", durable="true"))
    wire.expect_message("stays")
    wire.send(frames.unsubscribe("durable", durable="true", receipt="u"))
    assert until_receipt(wire, "u") == []


@pytest.mark.parametrize("header", EXPIRY_HEADERS)
@pytest.mark.parametrize("value", BAD)
def test_an_invalid_time_is_an_error(client: Clients, topic: str, header: str, value: str) -> None:
    for destination in (topic, topic.replace("/topic", "/queue"), f"#{topic}"):
        wire = client()
        wire.send(frames.send(destination, "x", (header, value), receipt="r"))
        wire.expect_error("E-VALUE", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_invalid_time_in_a_transaction_is_an_error(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    wire.send(frames.begin("t"), frames.send(queue, "never", transaction="t"))
    wire.send(frames.send(queue, "x", ttl="soon", transaction="t", receipt="r"), frames.commit("t"))
    wire.expect_error("E-VALUE", receipt_id="r")
    assert left_in(other, queue) == []


def test_an_invalid_time_affects_no_other_connection(client: Clients, topic: str) -> None:
    wire, other = client(), client()
    other.subscribe(topic)
    wire.send(frames.send(topic, "1"), frames.send(topic, "2", ttl="x"), frames.send(topic, "3"))
    wire.expect_error("E-VALUE")
    other.expect_message("1")
    other.barrier()


@pytest.mark.parametrize("soon", EXPIRY_HEADERS)
def test_the_shortest_of_several_lifetimes_applies(client: Clients, queue: str, soon: str) -> None:
    wire, dlq = client(), client()
    dlq.subscribe(dead_letters(queue))
    for number, names in enumerate(itertools.permutations(EXPIRY_HEADERS)):
        pairs = (lifetime(name, 30 if name == soon else 100_000) for name in names)
        wire.send(frames.send(queue, str(number), *pairs))
        dlq.expect_message(str(number), dead_letter_reason="expired")
    assert left_in(wire, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_expires_0_does_not_cancel_another_lifetime(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    wire.send_and_wait(queue, "x", expires=0, ttl=20)
    wait_ms(wire, 60)
    assert left_in(wire, queue) == []
