"""Failed deliveries, dead letters and lifetimes over restarts (docs/delivery.md, "Redelivery" and "Expiry")."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import frames
from tests.support.acks import ack, ack_and_wait, nack, nack_and_wait
from tests.support.expiry import EXPIRY_HEADERS, lifetime
from tests.support.parser import Frame
from tests.support.queues import bodies, dead_letters, fresh, take, unsubscribe_and_wait
from tests.support.redelivery import nack_repeatedly
from tests.support.stored import PERSISTENT, RESTARTS, Restart, Stored, in_flight, send_stored, waiting
from tests.support.wire import Wire


@pytest.fixture
def stored(tmp_path: Path, writers: int, store: str) -> Iterator[Stored]:
    """A directory with a broker that gives up after four failures."""
    stored = Stored(tmp_path / "store", store=store, writers=writers, redelivery_delay=2, max_deliveries=4)
    stored.start()
    yield stored
    stored.close()


def consume_one(stored: Stored, queue: str) -> tuple[Wire, Frame]:
    """Consumes a message without acknowledging it."""
    wire = stored.client()
    wire.send(frames.subscribe(queue, "s", ack="client-individual"))
    return wire, wire.expect_message(subscription="s")


def confirm(stored: Stored, queue: str) -> None:
    """Makes sure that what the queue's home has noted of its deliveries is stored: it stores a later message."""
    send_stored(stored.client(), queue, "later")


def test_failures_are_counted_across_processes(stored: Stored, queue: str, restart: Restart) -> None:
    """Two failures before the restart and two after it make four; the deliveries are counted, too."""
    send_stored(stored.client(), queue, "x")
    wire, message = consume_one(stored, queue)
    for count in ("2", "3"):
        wire.send(nack(wire, message))
        message = wire.expect_message("x", redelivered="true", delivery_count=count)
    confirm(stored, queue)
    restart(stored)
    wire = stored.client()
    wire.send(frames.subscribe(queue, "s", ack="client-individual", prefetch_count=1))
    message = wire.expect_message("x", redelivered="true", delivery_count="4")
    wire.send(nack(wire, message))
    later = wire.expect_message("later")
    wire.send(ack(wire, later))
    message = wire.expect_message("x", redelivered="true", delivery_count="5")
    assert nack_and_wait(wire, message) == []
    _, letter = consume_one(stored, dead_letters(queue))
    assert (letter.text, letter["dead-letter-reason"]) == ("x", "max-deliveries")
    assert letter["delivery-count"] == "5"


def test_deliveries_that_did_not_fail_are_no_failures(stored: Stored, queue: str) -> None:
    """Each process ends with the message in flight, more often than it may fail."""
    send_stored(stored.client(), queue, "x")
    for count in range(1, 7):
        _, message = consume_one(stored, queue)
        assert int(message.header("delivery-count") or 1) == count
        confirm(stored, queue)
        stored.restart()
    assert waiting(stored.client(), queue) == ["x", *["later"] * 6]


def test_dead_letters_survive_with_their_headers(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, "x", "y", a="1")
    wire, message = consume_one(stored, queue)
    wire.expect_message("y")
    nack_repeatedly(wire, message, 4)
    restart(stored)
    assert waiting(stored.client(), queue) == ["y"]
    _, letter = consume_one(stored, dead_letters(queue))
    assert (letter.text, letter["a"], letter["original-destination"]) == ("x", "1", queue)
    assert (letter["dead-letter-reason"], letter["message-id"]) == ("max-deliveries", message["message-id"])


def test_an_acknowledged_dead_letter_does_not_come_back(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, "x")
    wire, message = consume_one(stored, queue)
    nack_repeatedly(wire, message, 4)
    dead, letter = consume_one(stored, dead_letters(queue))
    assert ack_and_wait(dead, letter) == []
    restart(stored)
    wire = stored.client()
    assert waiting(wire, queue) == waiting(wire, dead_letters(queue)) == []


def test_rejected_messages_are_dead_letters_afterwards(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, "x")
    wire, message = consume_one(stored, queue)
    wire.send(nack(wire, message, requeue="false", receipt="rejected"))
    wire.expect_receipt("rejected")
    restart(stored)
    wire = stored.client()
    assert (waiting(wire, queue), waiting(wire, dead_letters(queue))) == ([], ["x"])


def test_the_limit_of_a_message_itself_survives(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, "x", max_exceptions=1)
    restart(stored)
    wire, message = consume_one(stored, queue)
    assert nack_and_wait(wire, message) == []
    _, letter = consume_one(stored, dead_letters(queue))
    assert (letter.text, letter["dead-letter-reason"]) == ("x", "max-exceptions")


@pytest.mark.parametrize("header", EXPIRY_HEADERS)
def test_a_lifetime_goes_on_over_a_restart(stored: Stored, queue: str, restart: Restart, header: str) -> None:
    """The message is not delivered, and becomes a dead letter, in whichever process its time is over."""
    wire = stored.client()
    name, value = lifetime(header, 1500)
    receipt = fresh("sent")
    wire.send(frames.send(queue, "short-lived", PERSISTENT, (name, value), receipt=receipt))
    wire.expect_receipt(receipt)
    send_stored(wire, queue, "long-lived", ttl=3_600_000)
    restart(stored)
    _, letter = consume_one(stored, dead_letters(queue))
    assert (letter.text, letter["dead-letter-reason"]) == ("short-lived", "expired")
    assert waiting(stored.client(), queue) == ["long-lived"]


def test_a_lifetime_of_which_the_end_is_far_is_not_cut_short(stored: Stored, queue: str, restart: Restart) -> None:
    """`expires:0` means never."""
    wire = stored.client()
    send_stored(wire, queue, "1", ttl=3_600_000)
    send_stored(wire, queue, "2", expires=0)
    restart(stored)
    assert waiting(stored.client(), queue) == ["1", "2"]
    restart(stored)
    with in_flight(stored.client(), queue, 2) as messages:
        assert bodies(messages) == ["1", "2"]


@pytest.mark.parametrize("restart", [RESTARTS["SIGTERM"]], ids=["SIGTERM"])
def test_what_waits_for_a_delay_is_stored_at_an_ordered_end(stored: Stored, queue: str, restart: Restart) -> None:
    stored.restart(redelivery_delay="1h")
    send_stored(stored.client(), queue, "1", "2", "3")
    wire = stored.client()
    wire.send(frames.subscribe(queue, "s", ack="client-individual"))
    first, *_ = take(wire, "1", "2", "3")
    assert nack_and_wait(wire, first) == []
    assert unsubscribe_and_wait(wire, "s") == []
    restart(stored)
    assert sorted(waiting(stored.client(), queue)) == ["1", "2", "3"]
