"""What is on disk once a RECEIPT has come: README.md, "What a RECEIPT promises"."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait, nack_and_wait
from tests.support.parser import Frame
from tests.support.queues import bodies, fill, numbered, take
from tests.support.stored import PERSISTENT, Restart, Stored, in_flight, send_stored, waiting
from tests.support.wire import Wire

NUMBERS = numbered(20)
FSYNC = ["always", "interval:1h", "never"]


def consume(wire: Wire, queue: str, *texts: str, mode: str = "client-individual") -> list[Frame]:
    """Consumes these messages without acknowledging them."""
    wire.subscribe(queue, "s", ack=mode)
    return take(wire, *texts, subscription="s")


@pytest.mark.parametrize("fsync", FSYNC)
def test_a_persistent_message_survives_the_process(stored: Stored, queue: str, restart: Restart, fsync: str) -> None:
    """What the process has written survives its end, whenever it is synced to the disk."""
    stored.restart(fsync=fsync)
    send_stored(stored.client(), queue, *NUMBERS)
    restart(stored)
    assert waiting(stored.client(), queue) == NUMBERS


def test_a_message_comes_back_as_it_was_sent(stored: Stored, queue: str, restart: Restart) -> None:
    wire = stored.client()
    pairs = [("a", "1"), ("b", r"2\c\n\\"), ("a", "3"), ("content-type", "text/plain")]
    wire.send_and_wait(queue, b"\0body\n\0", *pairs, PERSISTENT)
    with in_flight(wire, queue, 1) as (before,):
        pass
    restart(stored)
    with in_flight(stored.client(), queue, 1) as (after,):
        own = {"ack", "subscription", "redelivered", "delivery-count"}
        assert [pair for pair in after.headers if pair[0] not in own] == [
            pair for pair in before.headers if pair[0] not in own
        ]
        assert after.body == b"\0body\n\0"


def test_a_message_that_was_not_persistent_ends_with_the_process(stored: Stored, queue: str, restart: Restart) -> None:
    wire = stored.client()
    fill(wire, queue, "a")
    send_stored(wire, queue, "b")
    fill(wire, queue, "c")
    restart(stored)
    assert waiting(stored.client(), queue) == ["b"]


def test_later_messages_are_behind_earlier_ones(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, "1", "2")
    restart(stored)
    fill(stored.client(), queue, "3")
    send_stored(stored.client(), queue, "4")
    assert waiting(stored.client(), queue) == ["1", "2", "3", "4"]
    restart(stored)
    assert waiting(stored.client(), queue) == ["1", "2", "4"]


def test_message_ids_are_not_given_twice(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, *NUMBERS)
    restart(stored)
    send_stored(stored.client(), queue, *NUMBERS)
    with in_flight(stored.client(), queue, 40) as messages:
        assert len({message["message-id"] for message in messages}) == 40


def test_an_acknowledged_message_does_not_come_back(stored: Stored, queue: str, restart: Restart) -> None:
    wire = stored.client()
    send_stored(wire, queue, *NUMBERS)
    messages = consume(wire, queue, *NUMBERS)
    assert ack_and_wait(wire, *messages[3:7], messages[19]) == []
    restart(stored)
    assert waiting(stored.client(), queue) == NUMBERS[:3] + NUMBERS[7:19]


def test_a_cumulative_ack_covers_all_before_it(stored: Stored, queue: str, restart: Restart) -> None:
    wire = stored.client()
    send_stored(wire, queue, *NUMBERS)
    messages = consume(wire, queue, *NUMBERS, mode="client")
    assert ack_and_wait(wire, messages[12]) == []
    restart(stored)
    assert waiting(stored.client(), queue) == NUMBERS[13:]


def test_what_an_auto_consumer_has_received_does_not_come_back(stored: Stored, queue: str, restart: Restart) -> None:
    wire = stored.client()
    wire.subscribe(queue, "s")
    send_stored(stored.client(), queue, "1", "2")
    take(wire, "1", "2")
    wire.send(frames.unsubscribe("s"))
    wire.send_and_wait(queue, "3", PERSISTENT)
    restart(stored)
    assert waiting(stored.client(), queue) == ["3"]


def test_what_was_in_flight_comes_back_at_its_place_and_marked(stored: Stored, queue: str, restart: Restart) -> None:
    wire = stored.client()
    send_stored(wire, queue, "1", "2", "3")
    consume(wire, queue, "1", "2", "3")
    send_stored(stored.client(), f"{queue}-other", "x")
    wire.send(frames.unsubscribe("s"))
    wire.send_and_wait(queue, "4", PERSISTENT)
    restart(stored)
    with in_flight(stored.client(), queue, 4) as messages:
        assert bodies(messages) == ["1", "2", "3", "4"]
        counts = [(message.header("redelivered"), message.header("delivery-count")) for message in messages]
        assert counts == [("true", "2")] * 3 + [(None, None)]


def test_a_committed_transaction_is_there_as_a_whole(stored: Stored, queue: str, restart: Restart) -> None:
    queues = [f"{queue}-{number}" for number in range(8)]
    wire = stored.client()
    send_stored(wire, queue, *NUMBERS)
    messages = consume(wire, queue, *NUMBERS)
    wire.send(
        frames.begin("t"),
        *(frames.send(name, text, PERSISTENT, transaction="t") for name in queues for text in ("a", "b")),
        *(frames.ack(id=message["ack"], transaction="t") for message in messages[:10]),
        frames.commit("t", receipt="committed"),
    )
    wire.expect_receipt("committed")
    restart(stored)
    wire = stored.client()
    assert [waiting(wire, name) for name in queues] == [["a", "b"]] * 8
    assert waiting(wire, queue) == NUMBERS[10:]


@pytest.mark.parametrize("is_aborted", [False, True], ids=["open", "aborted"])
def test_a_transaction_that_was_not_committed_leaves_nothing(
    stored: Stored, queue: str, restart: Restart, is_aborted: bool
) -> None:
    wire = stored.client()
    send_stored(wire, queue, "1", "2")
    first, _ = consume(wire, queue, "1", "2")
    receipt = None if is_aborted else "accepted"
    wire.send(
        frames.begin("t"),
        frames.ack(id=first["ack"], transaction="t"),
        frames.send(queue, "3", PERSISTENT, transaction="t", receipt=receipt),
    )
    if is_aborted:
        wire.send(frames.abort("t", receipt="aborted"))
    wire.expect_receipt("aborted" if is_aborted else "accepted")
    restart(stored)
    assert waiting(stored.client(), queue) == ["1", "2"]


def test_a_refused_message_comes_back(stored: Stored, queue: str, restart: Restart) -> None:
    stored.restart(redelivery_delay="1h")
    wire = stored.client()
    send_stored(wire, queue, "1", "2")
    assert nack_and_wait(wire, *consume(wire, queue, "1", "2")) == []
    restart(stored)
    assert waiting(stored.client(), queue) == ["1", "2"]


def test_receipts_come_while_other_queues_are_consumed(stored: Stored, queue: str) -> None:
    """RECEIPTs leave in the order of the frames, those that wait for the disk and those that do not."""
    wire = stored.client()
    for number in range(100):
        header = [PERSISTENT] if number % 3 else []
        wire.send(frames.send(f"{queue}-{number % 7}", "x", *header, receipt=str(number)))
    for number in range(100):
        wire.expect_receipt(str(number))
