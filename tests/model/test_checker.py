"""The model test can fail: every kind of wrong delivery is flagged, and what is allowed is not."""

from __future__ import annotations

import pytest

from tests.model.story import Q, Story


def test_a_plain_run_is_allowed() -> None:
    story = Story()
    story.consumer("c", prefetch=2)
    story.sends("1", "2", "3")
    assert [each.body for each in story.model.owed()] == ["1", "2", "3"]
    first, second = story.gets("c", "1"), story.gets("c", "2")
    assert story.model.owed() == []
    story.acks(first)
    third = story.gets("c", "3")
    story.acks(third)
    story.acks(second)
    story.model.finish()


# -- lost ------------------------------------------------------------------------------------------------------


def test_a_message_never_delivered_is_owed_and_lost() -> None:
    story = Story()
    story.sends("1")
    story.consumer("c")
    assert [each.body for each in story.model.owed()] == ["1"]
    with story.finds("lost: 1"):
        story.model.finish()


def test_a_message_of_a_lost_consumer_is_owed_and_lost() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    story.gets("c", "1")
    story.resets("c")
    story.consumer("d")
    assert [each.body for each in story.model.owed()] == ["1"]
    with story.finds("lost: 1"):
        story.model.finish()


def test_a_send_without_receipt_may_be_lost_with_its_connection() -> None:
    story = Story()
    story.sends("1", receipts=False)
    story.resets("p")
    story.model.finish()


def test_a_send_before_one_that_was_seen_is_not() -> None:
    story = Story()
    story.sends("1", "2", receipts=False)
    story.resets("p")
    story.consumer("c")
    story.acks(story.gets("c", "2"))
    with story.finds("lost: 1"):
        story.model.finish()


def test_an_ack_without_receipt_may_count_or_not() -> None:
    for comes_back in (False, True):
        story = Story()
        story.consumer("c")
        story.sends("1")
        story.model.settle(story.gets("c", "1"), "ack")
        story.resets("c")
        if comes_back:
            story.consumer("d")
            story.acks(story.gets("d", "1", 2))
        story.model.finish()


def test_an_auto_consumer_that_is_reset_may_have_consumed_what_nobody_saw() -> None:
    story = Story()
    story.consumer("c", mode="auto")
    story.sends("1")
    story.resets("c")
    story.model.finish()
    story.consumer("d", mode="auto")
    story.gets("d", "1")


def test_a_consumer_with_acks_has_not() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    story.resets("c")
    with story.finds("lost: 1"):
        story.model.finish()


# -- doubled, held, foreign ------------------------------------------------------------------------------------


def test_an_acknowledged_message_never_comes_again() -> None:
    story = Story()
    story.consumer("c")
    story.consumer("d")
    story.sends("1")
    story.acks(story.gets("c", "1"))
    with story.finds("1 came to d/0 .* though it was acknowledged"):
        story.gets("d", "1", 2)


def test_not_even_before_the_receipt_of_its_ack() -> None:
    story = Story()
    story.consumer("c")
    story.consumer("d")
    story.sends("1")
    story.model.settle(story.gets("c", "1"), "ack")
    with story.finds("though its ACK was sent by c/0"):
        story.gets("d", "1", 2)


def test_an_auto_message_never_comes_again() -> None:
    story = Story()
    story.consumer("c", mode="auto")
    story.consumer("d")
    story.sends("1")
    story.gets("c", "1")
    story.resets("c")
    with story.finds("though it was consumed by c/0"):
        story.gets("d", "1", 2)


@pytest.mark.parametrize("connection", ["c", "d"])
def test_a_held_message_goes_to_nobody_else(connection: str) -> None:
    story = Story()
    story.consumer("c")
    story.consumer("d")
    story.sends("1")
    story.gets("c", "1")
    with story.finds("though it is held by c/0"):
        story.gets(connection, "1", 2)


def test_a_message_nobody_sent() -> None:
    story = Story()
    story.consumer("c")
    with story.finds("x came, which nobody sent"):
        story.gets("c", "x")


def test_a_message_of_another_queue() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1", queue="/queue/b")
    with story.finds("1 of /queue/b came to c/0"):
        story.gets("c", "1", queue="/queue/b")
    with story.finds("1 of /queue/b came from /queue/a"):
        story.gets("c", "1")


def test_nothing_comes_after_unsubscribe_s_receipt() -> None:
    story = Story()
    consumer = story.consumer("c")
    story.sends("1", "2")
    asked = story.model.unsubscribe(consumer)
    story.gets("c", "1")
    story.model.receipt(asked)
    with story.finds("no subscription"):
        story.gets("c", "2")


# -- order -----------------------------------------------------------------------------------------------------


def test_one_connection_sees_a_publisher_s_messages_in_order() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1", "2", receipts=False)
    story.gets("c", "2")
    with story.finds("1 came to c/0 .* after 2, out of turn"):
        story.gets("c", "1")


def test_two_publishers_are_ordered_by_a_receipt_only() -> None:
    for receipts in (False, True):
        story = Story()
        story.consumer("c")
        story.sends("1", publisher="p", receipts=receipts)
        story.sends("2", publisher="q")
        story.gets("c", "2")
        if receipts:
            with story.finds("out of turn"):
                story.gets("c", "1")
        else:
            story.gets("c", "1")


def test_two_connections_may_be_read_in_another_order() -> None:
    story = Story()
    story.consumer("c", prefetch=1)
    story.consumer("d", prefetch=1)
    story.sends("1", "2")
    story.gets("d", "2")
    story.gets("c", "1")


def test_but_not_a_consumer_that_came_after() -> None:
    story = Story()
    story.consumer("c", prefetch=1)
    story.sends("1", "2")
    story.gets("c", "2")
    story.consumer("d")
    with story.finds("1 came to d/0 .* after 2, out of turn"):
        story.gets("d", "1")


def test_nor_a_delivery_that_had_to_wait_for_an_ack() -> None:
    story = Story()
    story.consumer("c", prefetch=1)
    story.consumer("d", prefetch=1)
    story.sends("0")
    held = story.gets("d", "0")
    story.sends("1", "2")
    story.gets("c", "2")
    story.acks(held)
    with story.finds("out of turn"):
        story.gets("d", "1")


def test_a_returned_message_comes_before_later_ones() -> None:
    story = Story()
    story.consumer("c", prefetch=2)
    story.sends("1", "2", "3")
    story.gets("c", "1")
    story.gets("c", "2")
    story.resets("c")
    story.model.settled_down()
    story.consumer("d")
    story.gets("d", "1", 2)
    story.gets("d", "3")
    with story.finds("2 came to d/0 .* after 3, out of turn"):
        story.gets("d", "2", 2)


def test_it_may_be_on_its_way_back() -> None:
    story = Story()
    story.consumer("c", prefetch=1)
    story.sends("1", "2")
    story.gets("c", "1")
    story.resets("c")
    story.consumer("d")
    story.gets("d", "2")
    story.gets("d", "1", 2)


def test_what_one_consumer_held_comes_back_at_once() -> None:
    story = Story()
    story.consumer("c", prefetch=2)
    story.sends("1", "2", "3", "4")
    story.gets("c", "1")
    story.gets("c", "2")
    story.resets("c")
    story.consumer("d", prefetch=3)
    story.gets("d", "3")
    story.acks(story.gets("d", "1", 2))
    story.consumer("e")
    story.gets("e", "4")
    with story.finds("2 came to e/0 .* after 4, out of turn"):
        story.gets("e", "2", 2)


def test_a_refused_message_may_come_later() -> None:
    story = Story()
    story.consumer("c", prefetch=1)
    story.sends("1", "2")
    story.nacks(story.gets("c", "1"))
    story.acks(story.gets("c", "2"))
    story.now += 1
    story.gets("c", "1", 2)


# -- prefetch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_prefetch_is_not_exceeded(mode: str) -> None:
    story = Story()
    story.consumer("c", mode=mode, prefetch=2)
    story.sends("1", "2", "3")
    story.gets("c", "1")
    story.gets("c", "2")
    with story.finds("3 came to c/0 .* beside 1, 2"):
        story.gets("c", "3")


def test_an_ack_in_a_transaction_frees_no_place_before_commit() -> None:
    story = Story()
    story.consumer("c", prefetch=1)
    story.sends("1", "2")
    held = story.gets("c", "1")
    transaction = story.begins("c")
    story.does(story.model.settle(held, "ack", transaction))
    with story.finds("2 came to c/0 .* beside 1"):
        story.gets("c", "2")
    story.model.commit(transaction)
    story.gets("c", "2")


def test_a_cumulative_ack_covers_the_earlier_ones() -> None:
    story = Story()
    story.consumer("c", mode="client", prefetch=3)
    story.sends("1", "2", "3")
    for body in ("1", "2"):
        delivery = story.gets("c", body)
    story.acks(delivery)
    story.resets("c")
    story.consumer("d")
    story.acks(story.gets("d", "3"))
    story.model.finish()
    with story.finds("acknowledged"):
        story.gets("d", "1", 2)


def test_a_single_ack_does_not() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1", "2")
    story.gets("c", "1")
    story.acks(story.gets("c", "2"))
    with story.finds("lost: 1"):
        story.model.finish()


# -- counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "finding"),
    [
        ({"redelivered": "true"}, "redelivered:true beside delivery-count:None"),
        ({"delivery-count": "2"}, "redelivered:None beside delivery-count:2"),
        ({"redelivered": "true", "delivery-count": "1"}, "a first delivery says delivery-count:1"),
        ({"redelivered": "true", "delivery-count": "x"}, "delivery-count:x"),
        ({"redelivered": "true", "delivery-count": "2"}, "delivery-count 2, but 0 deliveries"),
    ],
)
def test_a_first_delivery_is_not_called_a_second(headers: dict[str, str], finding: str) -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    with story.finds(finding):
        story.model.message("c", "0", "1", Q, headers)


@pytest.mark.parametrize("count", [1, 3])
def test_a_second_delivery_is_the_second(count: int) -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    story.nacks(story.gets("c", "1"))
    story.now += 1
    with story.finds(f"delivery-count {count}, but 1 deliveries"):
        story.gets("c", "1", count)


def test_a_lost_consumer_may_have_had_one_that_nobody_saw() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    story.resets("c")
    story.consumer("d")
    story.gets("d", "1", 2)
