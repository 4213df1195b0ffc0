"""The reference model raises a violation for each kind of wrong delivery, and for no correct one."""

from __future__ import annotations

import pytest

from tests.model.driver import Driver, Q


def test_a_simple_correct_run_is_allowed() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=2)
    driver.send("1", "2", "3")
    assert driver.deliverable() == ["1", "2", "3"]
    first, second = driver.receive("c", "1"), driver.receive("c", "2")
    assert driver.deliverable() == []
    driver.ack(first)
    third = driver.receive("c", "3")
    driver.ack(third)
    driver.ack(second)
    driver.model.finish()


# -- lost ------------------------------------------------------------------------------------------------------


def test_a_message_that_is_never_delivered_is_lost() -> None:
    driver = Driver()
    driver.send("1")
    driver.consumer("c")
    driver.expect_undelivered("1")


def test_a_message_of_a_lost_consumer_that_is_not_redelivered_is_lost() -> None:
    driver = Driver()
    driver.hold("c", "1")
    driver.reset("c")
    driver.consumer("d")
    driver.expect_undelivered("1")


def test_a_send_without_receipt_may_be_lost_with_its_connection() -> None:
    driver = Driver()
    driver.send("1", receipts=False)
    driver.reset("p")
    driver.model.finish()


def test_a_send_before_one_that_was_delivered_must_not_be_lost() -> None:
    driver = Driver()
    driver.send("1", "2", receipts=False)
    driver.reset("p")
    driver.consumer("c")
    driver.ack(driver.receive("c", "2"))
    driver.expect_lost("1")


def test_an_ack_without_receipt_may_take_effect_or_not() -> None:
    for redelivered in (False, True):
        driver = Driver()
        driver.consumer("c")
        driver.send("1")
        driver.model.settle(driver.receive("c", "1"), "ack")
        driver.reset("c")
        if redelivered:
            driver.consumer("d")
            driver.ack(driver.receive("d", "1", 2))
        driver.model.finish()


def test_an_auto_consumer_that_is_reset_may_have_consumed_unread_messages() -> None:
    driver = Driver()
    driver.lose_in_transit("c", "1", mode="auto")
    driver.model.finish()
    driver.consumer("d", mode="auto")
    driver.receive("d", "1")


def test_a_consumer_with_acks_that_is_reset_consumes_nothing() -> None:
    driver = Driver()
    driver.lose_in_transit("c", "1")
    driver.expect_lost("1")


# -- delivered twice, held, not for this consumer --------------------------------------------------------------


def test_an_acknowledged_message_is_never_delivered_again() -> None:
    driver = Driver()
    driver.consumer("d")
    driver.ack(driver.hold("c", "1"))
    driver.expect_violation("1 came to d/0 .* though it was acknowledged", "d", "1", 2)


def test_an_acknowledged_message_is_not_delivered_again_before_the_receipt_of_its_ack() -> None:
    driver = Driver()
    driver.consumer("d")
    driver.model.settle(driver.hold("c", "1"), "ack")
    driver.expect_violation("though its ACK was sent by c/0", "d", "1", 2)


def test_a_message_of_an_auto_consumer_is_never_delivered_again() -> None:
    driver = Driver()
    driver.consumer("d")
    driver.hold("c", "1", mode="auto")
    driver.reset("c")
    driver.expect_violation("though it was consumed by c/0", "d", "1", 2)


@pytest.mark.parametrize("connection", ["c", "d"])
def test_a_held_message_is_delivered_to_nobody_else(connection: str) -> None:
    driver = Driver()
    driver.consumer("d")
    driver.hold("c", "1")
    driver.expect_violation("though it is held by c/0", connection, "1", 2)


def test_a_message_that_nobody_sent_is_a_violation() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.expect_violation("x came, which nobody sent", "c", "x")


def test_a_message_of_another_queue_is_a_violation() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", queue="/queue/b")
    driver.expect_violation("1 of /queue/b came to c/0", "c", "1", queue="/queue/b")
    driver.expect_violation("1 of /queue/b came from /queue/a", "c", "1")


def test_no_message_comes_after_the_receipt_of_unsubscribe() -> None:
    driver = Driver()
    consumer = driver.consumer("c")
    driver.send("1", "2")
    unsubscribe = driver.model.unsubscribe(consumer)
    driver.receive("c", "1")
    driver.model.receipt(unsubscribe)
    driver.expect_violation("no active subscription", "c", "2")


# -- order -----------------------------------------------------------------------------------------------------


def test_one_connection_receives_the_messages_of_a_publisher_in_order() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", "2", receipts=False)
    driver.receive("c", "2")
    driver.expect_violation("1 came to c/0 .* after 2, out of order", "c", "1")


def test_messages_of_two_publishers_are_ordered_only_by_a_receipt() -> None:
    for receipts in (False, True):
        driver = Driver()
        driver.consumer("c")
        driver.send("1", publisher="p", receipts=receipts)
        driver.send("2", publisher="q")
        driver.receive("c", "2")
        if receipts:
            driver.expect_violation("out of order", "c", "1")
        else:
            driver.receive("c", "1")


def test_two_connections_may_be_read_in_a_different_order() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.consumer("d", prefetch=1)
    driver.send("1", "2")
    driver.receive("d", "2")
    driver.receive("c", "1")


def test_a_consumer_that_subscribed_later_gets_no_earlier_message() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.send("1", "2")
    driver.receive("c", "2")
    driver.consumer("d")
    driver.expect_violation("1 came to d/0 .* after 2, out of order", "d", "1")


def test_a_delivery_that_had_to_wait_for_an_ack_is_in_order_with_earlier_ones() -> None:
    driver = Driver()
    driver.consumer("c", prefetch=1)
    driver.consumer("d", prefetch=1)
    driver.send("0")
    held = driver.receive("d", "0")
    driver.send("1", "2")
    driver.receive("c", "2")
    driver.ack(held)
    driver.expect_violation("out of order", "d", "1")


def test_a_requeued_message_is_delivered_before_later_ones() -> None:
    driver = Driver()
    driver.hold("c", "1", "2", "3", prefetch=2)
    driver.receive("c", "2")
    driver.reset("c")
    driver.model.quiescent()
    driver.consumer("d")
    driver.receive("d", "1", 2)
    driver.receive("d", "3")
    driver.expect_violation("2 came to d/0 .* after 3, out of order", "d", "2", 2)


def test_a_message_of_a_lost_consumer_may_still_be_in_transit() -> None:
    driver = Driver()
    driver.hold("c", "1", "2", prefetch=1)
    driver.reset("c")
    driver.consumer("d")
    driver.receive("d", "2")
    driver.receive("d", "1", 2)


def test_all_messages_that_a_lost_consumer_held_are_requeued_together() -> None:
    driver = Driver()
    driver.hold("c", "1", "2", "3", "4", prefetch=2)
    driver.receive("c", "2")
    driver.reset("c")
    driver.consumer("d", prefetch=3)
    driver.receive("d", "3")
    driver.ack(driver.receive("d", "1", 2))
    driver.consumer("e")
    driver.receive("e", "4")
    driver.expect_violation("2 came to e/0 .* after 4, out of order", "e", "2", 2)


def test_a_nacked_message_may_be_delivered_after_later_ones() -> None:
    driver = Driver()
    driver.nack(driver.hold("c", "1", "2", prefetch=1))
    driver.ack(driver.receive("c", "2"))
    driver.now += 1
    driver.receive("c", "1", 2)


# -- prefetch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_prefetch_is_not_exceeded(mode: str) -> None:
    driver = Driver()
    driver.hold("c", "1", "2", "3", mode=mode, prefetch=2)
    driver.receive("c", "2")
    driver.expect_violation("3 came to c/0 .* beside 1, 2", "c", "3")


def test_an_ack_in_a_transaction_frees_no_prefetch_before_commit() -> None:
    driver = Driver()
    held = driver.hold("c", "1", "2", prefetch=1)
    transaction = driver.ack_in_transaction(held)
    driver.expect_violation("2 came to c/0 .* beside 1", "c", "2")
    driver.model.commit(transaction)
    driver.receive("c", "2")


def test_a_cumulative_ack_covers_the_earlier_deliveries() -> None:
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
    driver.expect_violation("acknowledged", "d", "1", 2)


def test_an_individual_ack_covers_one_delivery() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", "2")
    driver.receive("c", "1")
    driver.ack(driver.receive("c", "2"))
    driver.expect_lost("1")


# -- counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "finding"),
    [
        ({"redelivered": "true"}, "redelivered:true beside delivery-count:None"),
        ({"delivery-count": "2"}, "redelivered:None beside delivery-count:2"),
        ({"redelivered": "true", "delivery-count": "1"}, "a first delivery has delivery-count:1"),
        ({"redelivered": "true", "delivery-count": "x"}, "delivery-count:x"),
        ({"redelivered": "true", "delivery-count": "2"}, "delivery-count 2, but 0 deliveries"),
    ],
)
def test_the_headers_of_a_first_delivery_do_not_say_redelivered(headers: dict[str, str], finding: str) -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1")
    with driver.raises(finding):
        driver.model.message("c", "0", "1", Q, headers)


@pytest.mark.parametrize("count", [1, 3])
def test_a_second_delivery_has_delivery_count_2(count: int) -> None:
    driver = Driver()
    driver.nack(driver.hold("c", "1"))
    driver.now += 1
    driver.expect_violation(f"delivery-count {count}, but 1 deliveries", "c", "1", count)


def test_a_lost_consumer_may_have_been_sent_a_delivery_that_nobody_read() -> None:
    driver = Driver()
    driver.lose_in_transit("c", "1")
    driver.consumer("d")
    driver.receive("d", "1", 2)
