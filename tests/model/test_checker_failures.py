"""The model test can fail: what refuses, timeouts and transactions make of a message."""

from __future__ import annotations

from tests.model.story import DEAD, Q, Story

# -- failures --------------------------------------------------------------------------------------------------


def test_a_refused_message_rests_for_its_delay() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    story.nacks(story.gets("c", "1"))
    story.now += 1
    story.nacks(story.gets("c", "1", 2))
    story.now += 1.5
    with story.finds("1 came 500 ms before its redelivery was due"):
        story.gets("c", "1", 3)


def test_it_is_a_dead_letter_after_its_last_failure() -> None:
    story = Story(max_deliveries=2)
    story.consumer("c")
    story.sends("1")
    story.nacks(story.gets("c", "1"))
    story.now += 1
    story.nacks(story.gets("c", "1", 2))
    story.now += 2
    with story.finds("1 came from /queue/a after 2 failures of 2"):
        story.gets("c", "1", 3)


def test_dead_letters_are_told_by_their_headers() -> None:
    story = Story(max_deliveries=2)
    story.consumer("c")
    story.consumer("d", DEAD)
    story.sends("1")
    story.nacks(story.gets("c", "1"))
    story.now += 1
    story.nacks(story.gets("c", "1", 2))
    assert [each.home for each in story.model.owed()] == [Q]
    with story.finds("dead-letter-reason:expired, not max-deliveries"):
        story.dead_letter("d", "1", 2, "expired")
    with story.finds("delivery-count 3 after 2 deliveries"):
        story.dead_letter("d", "1", 3)
    story.acks(story.dead_letter("d", "1", 2))
    story.model.finish()


def test_not_before_its_last_failure() -> None:
    story = Story(max_deliveries=2)
    story.consumer("c")
    story.consumer("d", DEAD)
    story.sends("1")
    story.nacks(story.gets("c", "1"))
    with story.finds("1 is a dead letter after at most 1 failures of 2"):
        story.dead_letter("d", "1", 1)


def test_a_lost_consumer_is_no_failure() -> None:
    story = Story(max_deliveries=1)
    story.consumer("c")
    story.sends("1")
    story.gets("c", "1")
    story.resets("c")
    story.consumer("d", DEAD)
    with story.finds("1 is a dead letter after at most 0 failures of 1"):
        story.dead_letter("d", "1", 1)


def test_a_dead_letter_must_come() -> None:
    story = Story(max_deliveries=1)
    story.consumer("c")
    story.sends("1")
    story.nacks(story.gets("c", "1"))
    assert story.model.owed() == []
    story.consumer("d", DEAD)
    assert [each.body for each in story.model.owed()] == ["1"]
    with story.finds("lost: 1"):
        story.model.finish()


def test_a_sender_may_be_stricter() -> None:
    story = Story(max_deliveries=5)
    story.consumer("c")
    story.consumer("d", DEAD)
    story.does(story.model.send("p", Q, "1", max_exceptions=1))
    story.nacks(story.gets("c", "1"))
    with story.finds("dead-letter-reason:max-deliveries, not max-exceptions"):
        story.dead_letter("d", "1", 1)
    story.dead_letter("d", "1", 1, "max-exceptions")


# -- ack_timeout -----------------------------------------------------------------------------------------------


def test_a_delivery_is_taken_back_after_the_timeout_only() -> None:
    story = Story(ack_timeout=5, redelivery_delay=0.5)
    story.consumer("c")
    story.consumer("d")
    story.sends("1")
    story.gets("c", "1")
    story.now += 4.9
    with story.finds("though it is held by c/0"):
        story.gets("d", "1", 2)
    story.now += 0.2
    with story.finds("before its redelivery was due"):
        story.gets("d", "1", 2)


def test_it_is_owed_after_the_timeout() -> None:
    story = Story(ack_timeout=5, redelivery_delay=0.5)
    story.consumer("c", prefetch=1)
    story.sends("1")
    story.gets("c", "1")
    assert story.model.owed() == []
    story.now += 5.6
    assert [each.body for each in story.model.owed()] == ["1"]
    story.gets("c", "1", 2)


def test_an_ack_after_the_timeout_may_count_or_not() -> None:
    story = Story(ack_timeout=5, redelivery_delay=0.5)
    story.consumer("c")
    story.sends("1")
    delivery = story.gets("c", "1")
    story.now += 6
    story.acks(delivery)
    story.model.finish()
    story.acks(story.gets("c", "1", 2))
    with story.finds("acknowledged"):
        story.gets("c", "1", 3)


# -- transactions ----------------------------------------------------------------------------------------------


def test_nothing_of_a_transaction_is_seen_before_commit() -> None:
    story = Story()
    story.consumer("c")
    story.begins("p", "1")
    with story.finds("1 came before its transaction was committed"):
        story.gets("c", "1")


def test_nothing_of_an_aborted_one_is_seen_at_all() -> None:
    story = Story()
    story.consumer("c")
    story.does(story.model.abort(story.begins("p", "1")))
    with story.finds("undone"):
        story.gets("c", "1")
    story.model.finish()


def test_nothing_of_one_whose_connection_was_lost() -> None:
    story = Story()
    story.consumer("c")
    story.begins("p", "1")
    story.resets("p")
    with story.finds("undone"):
        story.gets("c", "1")


def test_half_of_a_committed_one_is_lost() -> None:
    story = Story()
    story.consumer("c")
    story.does(story.model.commit(story.begins("p", "1", "2")))
    story.acks(story.gets("c", "1"))
    with story.finds("lost: 2"):
        story.model.finish()


def test_half_of_one_of_unknown_outcome_is_lost() -> None:
    story = Story()
    story.consumer("c")
    story.model.commit(story.begins("p", "1", "2"))
    story.resets("p")
    story.acks(story.gets("c", "1"))
    with story.finds("lost: 2"):
        story.model.finish()


def test_a_message_but_not_the_ack_of_one_of_unknown_outcome() -> None:
    story = Story()
    story.consumer("c")
    story.sends("0")
    held = story.gets("c", "0")
    transaction = story.begins("c", "1")
    story.does(story.model.settle(held, "ack", transaction))
    story.model.commit(transaction)
    story.resets("c")
    story.consumer("d")
    story.gets("d", "1")
    with story.finds("0 came to d/0 .* though it was acknowledged in tx-c, of which a message was seen"):
        story.gets("d", "0", 2)


def test_the_ack_but_not_the_message_of_one_of_unknown_outcome() -> None:
    story = Story()
    story.consumer("c")
    story.sends("0")
    held = story.gets("c", "0")
    transaction = story.begins("c", "1")
    story.does(story.model.settle(held, "ack", transaction))
    story.model.commit(transaction)
    story.resets("c")
    story.consumer("d")
    story.model.finish()
    story.model.fenced()
    assert [each.body for each in story.model.owed()] == ["0"]
    with story.finds("lost: 0"):
        story.model.finish()


def test_half_of_the_acks_of_one_of_unknown_outcome() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1", "2")
    transaction = story.begins("c")
    for body in ("1", "2"):
        story.does(story.model.settle(story.gets("c", body), "ack", transaction))
    story.model.commit(transaction)
    story.resets("c")
    story.consumer("d")
    story.acks(story.gets("d", "1", 2))
    with story.finds("lost: 2"):
        story.model.finish()


def test_an_aborted_ack_frees_nothing() -> None:
    story = Story()
    story.consumer("c")
    story.sends("1")
    held = story.gets("c", "1")
    transaction = story.begins("c")
    story.does(story.model.settle(held, "ack", transaction))
    story.does(story.model.abort(transaction))
    with story.finds("held by c/0"):
        story.gets("c", "1", 2)
    with story.finds("lost: 1"):
        story.model.finish()
    story.acks(held)
    story.model.finish()


def test_a_transaction_s_messages_stand_side_by_side() -> None:
    story = Story()
    story.consumer("c")
    commit = story.model.commit(story.begins("p", "1", "2"))
    story.sends("x", publisher="q", receipts=False)
    story.model.receipt(commit)
    story.gets("c", "1")
    story.gets("c", "x")
    with story.finds("tx-p is not in one piece: 1, x, 2"):
        story.gets("c", "2")


def test_a_transaction_s_messages_keep_their_order() -> None:
    story = Story()
    story.consumer("c")
    story.model.commit(story.begins("p", "1", "2"))
    story.gets("c", "2")
    with story.finds("out of turn"):
        story.gets("c", "1")


def test_commit_with_an_ack_that_was_taken_back_must_be_refused() -> None:
    for refused in (False, True):
        story = Story()
        consumer = story.consumer("c")
        story.sends("0")
        held = story.gets("c", "0")
        transaction = story.begins("c", "1")
        story.does(story.model.settle(held, "ack", transaction))
        story.does(story.model.unsubscribe(consumer))
        commit = story.model.commit(transaction)
        if refused:
            story.model.refused(commit)
            story.consumer("d")
            story.acks(story.gets("d", "0", 2))
            with story.finds("undone"):
                story.gets("d", "1")
        else:
            with story.finds("committed, though 0 had been taken back"):
                story.model.receipt(commit)


def test_commit_may_be_refused_for_an_unsubscribe_although_its_ack_was_in_time() -> None:
    """When COMMIT left, nobody knew yet whether the ACK had come before the ack_timeout."""
    story = Story(ack_timeout=5)
    consumer = story.consumer("c")
    story.sends("0")
    held = story.gets("c", "0")
    transaction = story.begins("c")
    acknowledged = story.model.settle(held, "ack", transaction)
    story.model.unsubscribe(consumer)
    commit = story.model.commit(transaction)
    story.model.receipt(acknowledged)
    story.model.refused(commit)


def test_commit_is_not_refused_without_a_reason() -> None:
    story = Story()
    commit = story.model.commit(story.begins("c", "1"))
    with story.finds("nothing in it was taken back"):
        story.model.refused(commit)


# -- reading late ----------------------------------------------------------------------------------------------


def test_an_older_delivery_may_be_read_after_a_newer_one() -> None:
    story = Story()
    consumer = story.consumer("c")
    story.consumer("d")
    story.sends("1")
    story.model.unsubscribe(consumer)
    newer = story.gets("d", "1", 2)
    story.gets("c", "1")
    with story.finds("came twice as delivery 1"):
        story.gets("c", "1")
    story.acks(newer)
    story.model.finish()


def test_a_refusal_of_the_same_transaction_may_be_seen_before_its_receipt() -> None:
    story = Story(max_deliveries=1)
    story.consumer("c")
    story.consumer("d", DEAD)
    story.sends("1")
    transaction = story.begins("c")
    story.does(story.model.settle(story.gets("c", "1"), "nack", transaction))
    commit = story.model.commit(transaction)
    story.acks(story.dead_letter("d", "1", 1))
    story.model.receipt(commit)
    story.model.finish()


def test_a_transaction_whose_message_may_have_been_consumed_unseen_stays_undecided() -> None:
    story = Story()
    story.consumer("c", mode="auto")
    story.model.commit(story.begins("c", "1"))
    story.resets("c")
    story.model.fenced()
    story.consumer("d")
    story.gets("d", "1")
