"""The reference model checks the effects of NACKs, timeouts and transactions."""

from __future__ import annotations

from tests.model.driver import DEAD, Driver, Q

# -- failures --------------------------------------------------------------------------------------------------


def test_a_nacked_message_waits_for_its_redelivery_delay() -> None:
    driver = Driver()
    driver.nack(driver.fail(driver.hold("c", "1")))
    driver.now += 1.5
    driver.expect_violation("1 came 500 ms before its redelivery was due", "c", "1", 3)


def test_a_message_is_a_dead_letter_after_its_last_failure() -> None:
    driver = Driver(max_deliveries=2)
    driver.nack(driver.fail(driver.hold("c", "1")))
    driver.now += 2
    driver.expect_violation("1 came from /queue/a after 2 failures of 2", "c", "1", 3)


def test_the_headers_of_a_dead_letter_are_checked() -> None:
    driver = Driver(max_deliveries=2)
    driver.consumer("d", DEAD)
    driver.nack(driver.fail(driver.hold("c", "1")))
    assert [each.home for each in driver.model.deliverable()] == [Q]
    with driver.raises("dead-letter-reason:expired, not max-deliveries"):
        driver.receive_dead_letter("d", "1", 2, "expired")
    with driver.raises("delivery-count 3 after 2 deliveries"):
        driver.receive_dead_letter("d", "1", 3)
    driver.ack(driver.receive_dead_letter("d", "1", 2))
    driver.model.finish()


def test_a_message_is_no_dead_letter_before_its_last_failure() -> None:
    driver = Driver(max_deliveries=2)
    driver.consumer("d", DEAD)
    driver.nack(driver.hold("c", "1"))
    with driver.raises("1 is a dead letter after at most 1 failures of 2"):
        driver.receive_dead_letter("d", "1", 1)


def test_the_loss_of_a_consumer_is_no_failure() -> None:
    driver = Driver(max_deliveries=1)
    driver.hold("c", "1")
    driver.reset("c")
    driver.consumer("d", DEAD)
    with driver.raises("1 is a dead letter after at most 0 failures of 1"):
        driver.receive_dead_letter("d", "1", 1)


def test_a_dead_letter_that_is_never_delivered_is_lost() -> None:
    driver = Driver(max_deliveries=1)
    driver.nack(driver.hold("c", "1"))
    assert driver.deliverable() == []
    driver.consumer("d", DEAD)
    driver.expect_undelivered("1")


def test_a_sender_may_set_a_lower_limit_of_failures() -> None:
    driver = Driver(max_deliveries=5)
    driver.consumer("c")
    driver.consumer("d", DEAD)
    driver.confirm(driver.model.send("p", Q, "1", max_exceptions=1))
    driver.nack(driver.receive("c", "1"))
    with driver.raises("dead-letter-reason:max-deliveries, not max-exceptions"):
        driver.receive_dead_letter("d", "1", 1)
    driver.receive_dead_letter("d", "1", 1, "max-exceptions")


# -- ack_timeout -----------------------------------------------------------------------------------------------


def test_a_delivery_is_requeued_only_after_the_timeout() -> None:
    driver = Driver(ack_timeout=5, redelivery_delay=0.5)
    driver.consumer("d")
    driver.hold("c", "1")
    driver.now += 4.9
    driver.expect_violation("though it is held by c/0", "d", "1", 2)
    driver.now += 0.2
    driver.expect_violation("before its redelivery was due", "d", "1", 2)


def test_a_message_must_be_redelivered_after_the_timeout() -> None:
    driver = Driver(ack_timeout=5, redelivery_delay=0.5)
    driver.hold("c", "1", prefetch=1)
    assert driver.deliverable() == []
    driver.now += 5.6
    assert driver.deliverable() == ["1"]
    driver.receive("c", "1", 2)


def test_an_ack_after_the_timeout_may_take_effect_or_not() -> None:
    driver = Driver(ack_timeout=5, redelivery_delay=0.5)
    delivery = driver.hold("c", "1")
    driver.now += 6
    driver.ack(delivery)
    driver.model.finish()
    driver.ack(driver.receive("c", "1", 2))
    driver.expect_violation("acknowledged", "c", "1", 3)


# -- transactions ----------------------------------------------------------------------------------------------


def test_no_message_of_a_transaction_is_delivered_before_commit() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.begin("p", "1")
    driver.expect_violation("1 came before its transaction was committed", "c", "1")


def test_no_message_of_an_aborted_transaction_is_delivered() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.confirm(driver.model.abort(driver.begin("p", "1")))
    driver.expect_violation("undone", "c", "1")
    driver.model.finish()


def test_no_message_of_a_transaction_whose_connection_was_lost_is_delivered() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.begin("p", "1")
    driver.reset("p")
    driver.expect_violation("undone", "c", "1")


def test_a_committed_transaction_must_not_lose_a_message() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.confirm(driver.model.commit(driver.begin("p", "1", "2")))
    driver.ack(driver.receive("c", "1"))
    driver.expect_lost("2")


def test_a_transaction_of_unknown_outcome_must_not_lose_only_some_messages() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.model.commit(driver.begin("p", "1", "2"))
    driver.reset("p")
    driver.ack(driver.receive("c", "1"))
    driver.expect_lost("2")


def ack_and_send_with_unknown_outcome() -> Driver:
    """COMMIT of an ACK of message 0 and a SEND of message 1 was sent, its answer never read. Consumer d waits."""
    driver = Driver()
    driver.model.commit(driver.ack_in_transaction(driver.hold("c", "0"), "1"))
    driver.reset("c")
    driver.consumer("d")
    return driver


def test_a_transaction_of_unknown_outcome_must_not_lose_only_its_ack() -> None:
    driver = ack_and_send_with_unknown_outcome()
    driver.receive("d", "1")
    driver.expect_violation("0 came to d/0 .* though it was acknowledged in tx-c, of which a message came", "d", "0", 2)


def test_a_transaction_of_unknown_outcome_must_not_lose_only_its_message() -> None:
    driver = ack_and_send_with_unknown_outcome()
    driver.model.finish()
    driver.model.resolve_unknown()
    driver.expect_undelivered("0")


def test_a_transaction_of_unknown_outcome_must_not_lose_only_some_acks() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.send("1", "2")
    transaction = driver.begin("c")
    for body in ("1", "2"):
        driver.confirm(driver.model.settle(driver.receive("c", body), "ack", transaction))
    driver.model.commit(transaction)
    driver.reset("c")
    driver.consumer("d")
    driver.ack(driver.receive("d", "1", 2))
    driver.expect_lost("2")


def test_an_aborted_ack_has_no_effect() -> None:
    driver = Driver()
    held = driver.hold("c", "1")
    transaction = driver.ack_in_transaction(held)
    driver.confirm(driver.model.abort(transaction))
    driver.expect_violation("held by c/0", "c", "1", 2)
    driver.expect_lost("1")
    driver.ack(held)
    driver.model.finish()


def test_the_messages_of_a_transaction_are_contiguous() -> None:
    driver = Driver()
    driver.consumer("c")
    commit = driver.model.commit(driver.begin("p", "1", "2"))
    driver.send("x", publisher="q", receipts=False)
    driver.model.receipt(commit)
    driver.receive("c", "1")
    driver.receive("c", "x")
    driver.expect_violation("tx-p is not contiguous: 1, x, 2", "c", "2")


def test_the_messages_of_a_transaction_keep_their_order() -> None:
    driver = Driver()
    driver.consumer("c")
    driver.model.commit(driver.begin("p", "1", "2"))
    driver.receive("c", "2")
    driver.expect_violation("out of order", "c", "1")


def test_commit_of_an_ack_whose_delivery_was_requeued_must_be_refused() -> None:
    for refused in (False, True):
        driver = Driver()
        consumer = driver.consumer("c")
        driver.send("0")
        held = driver.receive("c", "0")
        transaction = driver.begin("c", "1")
        driver.confirm(driver.model.settle(held, "ack", transaction))
        driver.confirm(driver.model.unsubscribe(consumer))
        commit = driver.model.commit(transaction)
        if refused:
            driver.model.refused(commit)
            driver.consumer("d")
            driver.ack(driver.receive("d", "0", 2))
            driver.expect_violation("undone", "d", "1")
        else:
            with driver.raises("committed, though 0 had been requeued"):
                driver.model.receipt(commit)


def test_commit_may_be_refused_for_an_unsubscribe_although_its_ack_was_in_time() -> None:
    """When COMMIT was sent, it was not known whether the ACK had come before the ack_timeout."""
    driver = Driver(ack_timeout=5)
    consumer = driver.consumer("c")
    driver.send("0")
    held = driver.receive("c", "0")
    transaction = driver.begin("c")
    acknowledged = driver.model.settle(held, "ack", transaction)
    driver.model.unsubscribe(consumer)
    commit = driver.model.commit(transaction)
    driver.model.receipt(acknowledged)
    driver.model.refused(commit)


def test_commit_must_not_be_refused_without_a_reason() -> None:
    driver = Driver()
    commit = driver.model.commit(driver.begin("c", "1"))
    with driver.raises("none of its deliveries was requeued"):
        driver.model.refused(commit)


# -- reading late ----------------------------------------------------------------------------------------------


def test_an_older_delivery_may_be_read_after_a_newer_one() -> None:
    driver = Driver()
    consumer = driver.consumer("c")
    driver.consumer("d")
    driver.send("1")
    driver.model.unsubscribe(consumer)
    newer = driver.receive("d", "1", 2)
    driver.receive("c", "1")
    driver.expect_violation("came twice as delivery 1", "c", "1")
    driver.ack(newer)
    driver.model.finish()


def test_a_dead_letter_of_a_transaction_may_be_read_before_the_receipt_of_commit() -> None:
    driver = Driver(max_deliveries=1)
    driver.consumer("c")
    driver.consumer("d", DEAD)
    driver.send("1")
    transaction = driver.begin("c")
    driver.confirm(driver.model.settle(driver.receive("c", "1"), "nack", transaction))
    commit = driver.model.commit(transaction)
    driver.ack(driver.receive_dead_letter("d", "1", 1))
    driver.model.receipt(commit)
    driver.model.finish()


def test_a_transaction_whose_message_may_have_been_consumed_unread_stays_undecided() -> None:
    driver = Driver()
    driver.consumer("c", mode="auto")
    driver.model.commit(driver.begin("c", "1"))
    driver.reset("c")
    driver.model.resolve_unknown()
    driver.consumer("d")
    driver.receive("d", "1")
