"""The model test can fail: every kind of wrong delivery is flagged, and what is allowed is not."""

from __future__ import annotations

import pytest

from tests.model.driver import Driver, Q


def test_a_plain_run_is_allowed() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=2)
    driver.send("1", "2", "3")
    assert [each.body for each in driver.model.owed()] == ["1", "2", "3"]
    first, second = driver.receive("c", "1"), driver.receive("c", "2")
    assert driver.model.owed() == []
    driver.ack(first)
    third = driver.receive("c", "3")
    driver.ack(third)
    driver.ack(second)
    driver.model.finish()


# -- lost ------------------------------------------------------------------------------------------------------


def test_a_message_never_delivered_is_owed_and_lost() -> None:
    driver = Driver()
    driver.send("1")
    driver.consumer("c")
    assert [each.body for each in driver.model.owed()] == ["1"]
    with driver.raises("lost: 1"):
        driver.model.finish()


def test_a_message_of_a_lost_consumer_is_owed_and_lost() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1")
    driver.receive("c", "1")
    driver.reset("c")
    driver.consumer("d")
    assert [each.body for each in driver.model.owed()] == ["1"]
    with driver.raises("lost: 1"):
        driver.model.finish()


def test_a_send_without_receipt_may_be_lost_with_its_connection() -> None:
    driver = Driver()
    driver.send("1", receipts=False)
    driver.reset("p")
    driver.model.finish()


def test_a_send_before_one_that_was_seen_is_not() -> None:
    driver = Driver()
    driver.send("1", "2", receipts=False)
    driver.reset("p")
    driver.consumer("c")
    driver.ack(driver.receive("c", "2"))
    with driver.raises("lost: 1"):
        driver.model.finish()


def test_an_ack_without_receipt_may_count_or_not() -> None:
    for comes_back in (False, True):
        driver = Driver()
        driver.consumer("c")
        driver.send("1")
        driver.model.settle(driver.receive("c", "1"), "ack")
        driver.reset("c")
        if comes_back:
            driver.consumer("d")
            driver.ack(driver.receive("d", "1", 2))
        driver.model.finish()


def test_an_auto_consumer_that_is_reset_may_have_consumed_what_nobody_saw() -> None:
    driver = Driver()
    driver.consumer("c", mode="auto")
    driver.send("1")
    driver.reset("c")
    driver.model.finish()
    driver.consumer("d", mode="auto")
    driver.receive("d", "1")


def test_a_consumer_with_acks_has_not() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1")
    driver.reset("c")
    with driver.raises("lost: 1"):
        driver.model.finish()


# -- doubled, held, foreign ------------------------------------------------------------------------------------


def test_an_acknowledged_message_never_comes_again() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.consumer("d")
    driver.send("1")
    driver.ack(driver.receive("c", "1"))
    with driver.raises("1 came to d/0 .* though it was acknowledged"):
        driver.receive("d", "1", 2)


def test_not_even_before_the_receipt_of_its_ack() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.consumer("d")
    driver.send("1")
    driver.model.settle(driver.receive("c", "1"), "ack")
    with driver.raises("though its ACK was sent by c/0"):
        driver.receive("d", "1", 2)


def test_an_auto_message_never_comes_again() -> None:
    driver = Driver()
    driver.consumer("c", mode="auto")
    driver.consumer("d")
    driver.send("1")
    driver.receive("c", "1")
    driver.reset("c")
    with driver.raises("though it was consumed by c/0"):
        driver.receive("d", "1", 2)


@pytest.mark.parametrize("connection", ["c", "d"])
def test_a_held_message_goes_to_nobody_else(connection: str) -> None:
    driver = Driver()
    driver.consumer("c")
    driver.consumer("d")
    driver.send("1")
    driver.receive("c", "1")
    with driver.raises("though it is held by c/0"):
        driver.receive(connection, "1", 2)


def test_a_message_nobody_sent() -> None:
    driver = Driver()
    driver.consumer("c")
    with driver.raises("x came, which nobody sent"):
        driver.receive("c", "x")


def test_a_message_of_another_queue() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", queue="/queue/b")
    with driver.raises("1 of /queue/b came to c/0"):
        driver.receive("c", "1", queue="/queue/b")
    with driver.raises("1 of /queue/b came from /queue/a"):
        driver.receive("c", "1")


def test_nothing_comes_after_unsubscribe_s_receipt() -> None:
    driver = Driver()
    consumer = driver.consumer("c")
    driver.send("1", "2")
    asked = driver.model.unsubscribe(consumer)
    driver.receive("c", "1")
    driver.model.receipt(asked)
    with driver.raises("no subscription"):
        driver.receive("c", "2")


# -- order -----------------------------------------------------------------------------------------------------


def test_one_connection_sees_a_publisher_s_messages_in_order() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", "2", receipts=False)
    driver.receive("c", "2")
    with driver.raises("1 came to c/0 .* after 2, out of turn"):
        driver.receive("c", "1")


def test_two_publishers_are_ordered_by_a_receipt_only() -> None:
    for receipts in (False, True):
        driver = Driver()
        driver.consumer("c")
        driver.send("1", publisher="p", receipts=receipts)
        driver.send("2", publisher="q")
        driver.receive("c", "2")
        if receipts:
            with driver.raises("out of turn"):
                driver.receive("c", "1")
        else:
            driver.receive("c", "1")


def test_two_connections_may_be_read_in_another_order() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.consumer("d", prefetch=1)
    driver.send("1", "2")
    driver.receive("d", "2")
    driver.receive("c", "1")


def test_but_not_a_consumer_that_came_after() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.send("1", "2")
    driver.receive("c", "2")
    driver.consumer("d")
    with driver.raises("1 came to d/0 .* after 2, out of turn"):
        driver.receive("d", "1")


def test_nor_a_delivery_that_had_to_wait_for_an_ack() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.consumer("d", prefetch=1)
    driver.send("0")
    held = driver.receive("d", "0")
    driver.send("1", "2")
    driver.receive("c", "2")
    driver.ack(held)
    with driver.raises("out of turn"):
        driver.receive("d", "1")


def test_a_returned_message_comes_before_later_ones() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=2)
    driver.send("1", "2", "3")
    driver.receive("c", "1")
    driver.receive("c", "2")
    driver.reset("c")
    driver.model.settled_down()
    driver.consumer("d")
    driver.receive("d", "1", 2)
    driver.receive("d", "3")
    with driver.raises("2 came to d/0 .* after 3, out of turn"):
        driver.receive("d", "2", 2)


def test_it_may_be_on_its_way_back() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.send("1", "2")
    driver.receive("c", "1")
    driver.reset("c")
    driver.consumer("d")
    driver.receive("d", "2")
    driver.receive("d", "1", 2)


def test_what_one_consumer_held_comes_back_at_once() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=2)
    driver.send("1", "2", "3", "4")
    driver.receive("c", "1")
    driver.receive("c", "2")
    driver.reset("c")
    driver.consumer("d", prefetch=3)
    driver.receive("d", "3")
    driver.ack(driver.receive("d", "1", 2))
    driver.consumer("e")
    driver.receive("e", "4")
    with driver.raises("2 came to e/0 .* after 4, out of turn"):
        driver.receive("e", "2", 2)


def test_a_refused_message_may_come_later() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.send("1", "2")
    driver.nack(driver.receive("c", "1"))
    driver.ack(driver.receive("c", "2"))
    driver.now += 1
    driver.receive("c", "1", 2)


# -- prefetch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_prefetch_is_not_exceeded(mode: str) -> None:
    driver = Driver()
    driver.consumer("c", mode=mode, prefetch=2)
    driver.send("1", "2", "3")
    driver.receive("c", "1")
    driver.receive("c", "2")
    with driver.raises("3 came to c/0 .* beside 1, 2"):
        driver.receive("c", "3")


def test_an_ack_in_a_transaction_frees_no_place_before_commit() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.send("1", "2")
    held = driver.receive("c", "1")
    transaction = driver.begin("c")
    driver.confirm(driver.model.settle(held, "ack", transaction))
    with driver.raises("2 came to c/0 .* beside 1"):
        driver.receive("c", "2")
    driver.model.commit(transaction)
    driver.receive("c", "2")


def test_a_cumulative_ack_covers_the_earlier_ones() -> None:
    driver = Driver()
    driver.consumer("c", mode="client", prefetch=3)
    driver.send("1", "2", "3")
    for body in ("1", "2"):
        delivery = driver.receive("c", body)
    driver.ack(delivery)
    driver.reset("c")
    driver.consumer("d")
    driver.ack(driver.receive("d", "3"))
    driver.model.finish()
    with driver.raises("acknowledged"):
        driver.receive("d", "1", 2)


def test_a_single_ack_does_not() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", "2")
    driver.receive("c", "1")
    driver.ack(driver.receive("c", "2"))
    with driver.raises("lost: 1"):
        driver.model.finish()


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
    driver = Driver()
    driver.consumer("c")
    driver.send("1")
    with driver.raises(finding):
        driver.model.message("c", "0", "1", Q, headers)


@pytest.mark.parametrize("count", [1, 3])
def test_a_second_delivery_is_the_second(count: int) -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1")
    driver.nack(driver.receive("c", "1"))
    driver.now += 1
    with driver.raises(f"delivery-count {count}, but 1 deliveries"):
        driver.receive("c", "1", count)


def test_a_lost_consumer_may_have_had_one_that_nobody_saw() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1")
    driver.reset("c")
    driver.consumer("d")
    driver.receive("d", "1", 2)
