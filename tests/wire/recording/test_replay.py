"""Replays: where they begin and end, and that live messages follow without a gap or a repetition."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.queues import fresh
from tests.support.recorded import QUEUE, TOPIC, numbers, record, replay
from tests.support.stored import Stored


def test_a_topic_is_numbered_for_everybody(stored: Stored) -> None:
    subscriber, publisher = stored.client(), stored.client()
    subscriber.subscribe(TOPIC, "live")
    record(publisher, TOPIC, 1, 3, ("seq", "99"), ("kind", "x"), ("epoch", "1"))
    for number in range(1, 4):
        message = subscriber.expect_message(str(number), seq=str(number), kind="x")
        assert [name for name, _ in message.headers].count("seq") == 1
        assert message["epoch"] != "1"


@pytest.mark.parametrize("destination", [TOPIC, QUEUE])
def test_history_comes_first_and_live_messages_follow(stored: Stored, destination: str) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, destination, 1, 50)
    assert replay(reader, destination, "r", "first")["recovered"] == "true"
    assert numbers(reader, "r", 50) == list(range(1, 51))
    record(publisher, destination, 51, 50)
    assert numbers(reader, "r", 50) == list(range(51, 101))


@pytest.mark.parametrize(
    ("start", "first"),
    [("first", 1), ("last", 20), ("next", 21), ("seq=7", 7), ("seq=21", 21), ("time=1000", 1), ("ago=1h", 1)],
)
def test_every_beginning(stored: Stored, start: str, first: int) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 20)
    replay(reader, TOPIC, "r", start)
    record(publisher, TOPIC, 21, 5)
    assert numbers(reader, "r", 26 - first) == list(range(first, 26))
    reader.barrier(publisher)


def test_a_replay_ends_where_it_was_asked_to(stored: Stored) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 20)
    replay(reader, TOPIC, "r", "seq=5", replay_until="seq=9")
    assert numbers(reader, "r", 5) == [5, 6, 7, 8, 9]
    record(publisher, TOPIC, 21, 3)
    reader.barrier(publisher)


def test_the_header_of_rabbitmq_counts_from_zero(stored: Stored) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 3)
    receipt = fresh("offset")
    reader.send(frames.subscribe(TOPIC, "r", ("x-stream-offset", "offset=1"), receipt=receipt))
    reader.expect("RECEIPT", receipt_id=receipt, recovered="true")
    assert numbers(reader, "r", 2) == [2, 3]


def test_a_replay_of_a_queue_consumes_nothing(stored: Stored) -> None:
    reader, consumer, publisher = stored.client(), stored.client(), stored.client()
    record(publisher, QUEUE, 1, 10)
    replay(reader, QUEUE, "r", "first", ack="client-individual")
    replayed = [reader.expect_message(str(number)) for number in range(1, 11)]
    reader.send(*(frames.ack(id=message["ack"]) for message in replayed), frames.begin("t", receipt="acked"))
    reader.expect_receipt("acked")
    consumer.subscribe(QUEUE, "c", ack="client-individual")
    for number in range(1, 11):
        message = consumer.expect_message(str(number), seq=str(number), redelivered=None)
        consumer.send(frames.ack(id=message["ack"]))
    record(publisher, QUEUE, 11, 1)
    consumer.expect_message("11")
    reader.expect_message("11", seq="11")


def test_prefetch_holds_history_back(stored: Stored) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 20)
    replay(reader, TOPIC, "r", "first", ack="client", prefetch_count=3)
    assert numbers(reader, "r", 2) == [1, 2]
    third = reader.expect_message("3")
    reader.barrier()
    reader.send(frames.ack(id=third["ack"]))
    assert numbers(reader, "r", 3) == [4, 5, 6]
    reader.barrier()


def test_delayed_messages_come_later_and_in_order(stored: Stored) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 3)
    replay(reader, TOPIC, "r", "first", replay_delay=300)
    record(publisher, TOPIC, 4, 3)
    reader.barrier(publisher)  # nothing has come yet
    assert numbers(reader, "r", 6) == [1, 2, 3, 4, 5, 6]


def test_an_unsubscribed_replay_ends_and_its_id_is_free(stored: Stored) -> None:
    reader, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 3)
    for _ in range(3):
        replay(reader, TOPIC, "r", "first")
        assert numbers(reader, "r", 3) == [1, 2, 3]
        reader.send(frames.unsubscribe("r", receipt="gone"))
        reader.expect_receipt("gone")
    record(publisher, TOPIC, 4, 3)
    reader.barrier(publisher)


def test_messages_of_a_transaction_are_recorded_in_order(stored: Stored) -> None:
    publisher, reader = stored.client(), stored.client()
    publisher.send(frames.begin("t"))
    for number in range(1, 6):
        publisher.send(frames.send(TOPIC, str(number), transaction="t"))
        publisher.send(frames.send(QUEUE, str(number), ("persistent", "true"), transaction="t"))
    publisher.send(frames.commit("t", receipt="done"))
    publisher.expect_receipt("done")
    for id, destination in enumerate([TOPIC, QUEUE]):
        replay(reader, destination, str(id), "first")
        assert numbers(reader, str(id), 5) == [1, 2, 3, 4, 5]


def test_a_large_history_reaches_a_slow_reader_completely(stored: Stored) -> None:
    reader, publisher = stored.client(), stored.client()
    count, body = 3000, "x" * 2000
    publisher.send(*(frames.send(TOPIC, body) for _ in range(count)))
    record(publisher, TOPIC, count + 1, 1)
    replay(reader, TOPIC, "r", "first")
    for number in range(1, count + 1):
        reader.expect_message(body, seq=str(number))
    assert numbers(reader, "r", 1) == [count + 1]
