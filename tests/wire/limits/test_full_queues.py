"""Queue limits where no client sends at that moment: dead letters, and transactions by bytes.

See docs/behaviour.md, sections 1, 3 and 7.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait, nack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.clock import wait_ms
from tests.support.diagnostics import answer
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, dead_letters, fill, take, take_all
from tests.support.waiting import eventually

ROOM = 3
KILOBYTE = "." * 1000


@pytest.fixture
def tight(start_broker: StartBroker) -> BrokerProcess:
    """A broker whose queues hold three messages, and which gives up after one delivery."""
    return start_broker(max_queue_length=ROOM, max_deliveries=1)


# -- dead letters --------------------------------------------------------------------------------------------------


def test_a_dead_letter_without_room_is_dropped_and_counted(client: Clients, tight: BrokerProcess, queue: str) -> None:
    """Each NACK gets its RECEIPT; the log and a counter report the drop."""
    wire, publisher = client(to=tight), client(to=tight)
    wire.subscribe(queue, "s", ack="client-individual")
    before = answer(wire, "network")["dropped"]
    for number in range(ROOM + 2):
        publisher.send_and_wait(queue, str(number))
        assert nack_and_wait(wire, wire.expect_message(str(number))) == []
    publisher.send_and_wait(queue, "still here")
    wire.expect_message("still here")
    tight.wait_for_log(rf"a message to '{dead_letters(queue)}' is dropped: .*max_queue_length is {ROOM}")
    reader = client(to=tight)
    assert bodies(take_all(reader, dead_letters(queue), ROOM)) == ["0", "1", "2"]
    eventually(lambda: answer(reader, "network")["dropped"] - before == 2, "both drops are counted")


def test_reading_dead_letters_makes_room_for_more(client: Clients, tight: BrokerProcess, queue: str) -> None:
    wire, reader = client(to=tight), client(to=tight)
    wire.subscribe(queue, "s", ack="client-individual")
    for first in range(0, 2 * ROOM, ROOM):
        numbers = [str(number) for number in range(first, first + ROOM)]
        for number in numbers:
            wire.send(frames.send(queue, number))
            assert nack_and_wait(wire, wire.expect_message(number)) == []
        assert bodies(take_all(reader, dead_letters(queue), ROOM)) == numbers


def test_an_expired_message_without_room_is_dropped(client: Clients, tight: BrokerProcess, queue: str) -> None:
    wire, reader = client(to=tight), client(to=tight)
    fill(wire, dead_letters(queue), "0", "1", "2")
    wire.send_and_wait(queue, "short-lived", ttl=30)
    tight.wait_for_log(rf"a message to '{dead_letters(queue)}' is dropped")
    fill(wire, queue, "3", "4", "5")  # the expired message takes no room
    assert bodies(take_all(reader, queue, ROOM)) == ["3", "4", "5"]
    assert bodies(take_all(reader, dead_letters(queue), ROOM)) == ["0", "1", "2"]


def test_a_send_to_a_full_dead_letter_queue_is_refused(client: Clients, tight: BrokerProcess, queue: str) -> None:
    wire, reader = client(to=tight), client(to=tight)
    fill(reader, dead_letters(queue), "0", "1", "2")
    wire.send(frames.send(dead_letters(queue), "3", receipt="r"))
    wire.expect_error("E-QUEUE-FULL", receipt_id="r")
    assert bodies(take_all(reader, dead_letters(queue), ROOM)) == ["0", "1", "2"]


def test_a_message_in_its_redelivery_delay_counts_against_the_limit(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    broker = shared_broker(max_queue_length=ROOM, redelivery_delay="1h")
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe(queue, "s", ack="client-individual")
    fill(publisher, queue, "0", "1", "2")
    first, second, _ = take(wire, "0", "1", "2")
    assert nack_and_wait(wire, first) == []
    publisher.send(frames.send(queue, "3", receipt="r"))
    publisher.expect_error("E-QUEUE-FULL", receipt_id="r")
    assert ack_and_wait(wire, second) == []
    client(to=broker).send_and_wait(queue, "4")
    wire.expect_message("4")


def test_an_expired_message_makes_room(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    broker = shared_broker(max_queue_length=ROOM)
    wire, reader = client(to=broker), client(to=broker)
    wire.send_and_wait(queue, "short-lived", ttl=50)
    fill(wire, queue, "0", "1")
    wait_ms(reader, 100)
    fill(wire, queue, "2")
    assert bodies(take_all(reader, queue, ROOM)) == ["0", "1", "2"]


# -- transactions by bytes -----------------------------------------------------------------------------------------


@pytest.fixture
def small(shared_broker: StartBroker) -> BrokerProcess:
    """A broker whose queues hold ten kilobytes."""
    return shared_broker(max_queue_bytes=10_000)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_over_the_bytes_of_a_queue_has_no_effect_anywhere(
    client: Clients, small: BrokerProcess, topic: str, queue: str, version: str
) -> None:
    wire, other, listener = client(version, to=small), client(to=small), client(to=small)
    listener.subscribe(topic)
    other.subscribe(f"{queue}/a", "a")
    other.subscribe(f"{queue}/b", "b")
    fill(other, f"{queue}/in", "in")
    wire.send(frames.subscribe(f"{queue}/in", "s", ack="client"))
    message = wire.expect_message("in")
    wire.send(frames.begin("t"))
    for destination in (topic, f"{queue}/a", f"{queue}/full", f"{queue}/b"):
        wire.send(frames.send(destination, "never", transaction="t"))
    wire.send(*(frames.send(f"{queue}/full", KILOBYTE, transaction="t") for _ in range(10)))
    name = {"1.2": "ack", "1.1": "message-id", "1.0": "message-id"}[version]
    pairs = [("id" if version == "1.2" else name, message[name]), ("subscription", "s")]
    wire.send(frames.ack(*pairs, transaction="t", receipt="accepted"))
    wire.expect_receipt("accepted")
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-QUEUE-FULL", receipt_id="c")
    other.send(frames.subscribe(f"{queue}/in", "in"))
    other.expect_message("in", redelivered="true", subscription="in")
    for each in (other, listener):
        each.barrier(other)
    # a refused commit reserves no room
    fill(other, f"{queue}/full", *[KILOBYTE] * 9)
    assert bodies(take_all(client(to=small), f"{queue}/full", 9)) == [KILOBYTE] * 9


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_counts_as_a_whole_against_the_bytes_of_a_queue(
    client: Clients, small: BrokerProcess, queue: str, version: str
) -> None:
    """Eight messages of a kilobyte fit alone, but not beside two that wait."""
    other = client(to=small)
    sends = [frames.send(queue, KILOBYTE, transaction="t") for _ in range(8)]
    fill(other, queue, KILOBYTE, KILOBYTE)
    refused = client(version, to=small)
    refused.send(frames.begin("t"), *sends, frames.commit("t", receipt="c"))
    refused.expect_error("E-QUEUE-FULL", receipt_id="c")
    assert bodies(take_all(other, queue, 2)) == [KILOBYTE] * 2
    wire = client(version, to=small)
    wire.send(frames.begin("t"), *sends, frames.commit("t", receipt="c"))
    wire.expect_receipt("c")
    assert bodies(take_all(other, queue, 8)) == [KILOBYTE] * 8
