"""The model test can fail: every kind of wrong delivery is flagged, and what is allowed is not."""

from __future__ import annotations

import pytest

from tests.model.ledger import Command, Consumer, Delivery, Rules, Transaction, Violation
from tests.model.model import Model

Q = "/queue/a"
DEAD = "/queue/dlq/a"


class Story:
    """A model with a clock of its own, told what happens in a few words."""

    def __init__(self, *, max_deliveries: int = 10, redelivery_delay: float = 1.0, ack_timeout: float = 0.0) -> None:
        self.now = 100.0
        rules = Rules(max_deliveries, redelivery_delay, ack_timeout, slack=0.0)
        self.model = Model(rules, clock=lambda: self.now)

    def does(self, command: Command) -> Command:
        """A frame and its RECEIPT."""
        self.model.receipt(command)
        return command

    def consumer(
        self, connection: str, pattern: str = Q, mode: str = "client-individual", prefetch: int = 0
    ) -> Consumer:
        consumer = self.does(self.model.subscribe(connection, "0", pattern, mode, prefetch)).consumer
        assert consumer is not None
        return consumer

    def sends(self, *bodies: str, publisher: str = "p", queue: str = Q, receipts: bool = True) -> list[Command]:
        commands = [self.model.send(publisher, queue, body) for body in bodies]
        for command in commands if receipts else ():
            self.model.receipt(command)
        return commands

    def gets(self, connection: str, body: str, count: int = 1, queue: str = Q, **headers: str) -> Delivery:
        if count > 1:
            headers = {"redelivered": "true", "delivery-count": str(count), **headers}
        return self.model.message(connection, "0", body, queue, headers)

    def dead_letter(self, connection: str, body: str, count: int, reason: str = "max-deliveries") -> Delivery:
        headers = {"dead-letter-reason": reason, "original-destination": Q, "delivery-count": str(count)}
        return self.model.message(connection, "0", body, DEAD, headers)

    def begins(self, connection: str, *bodies: str, queue: str = Q) -> Transaction:
        transaction = self.does(self.model.begin(connection, f"tx-{connection}")).transaction
        assert transaction is not None
        for body in bodies:
            self.does(self.model.send(connection, queue, body, transaction=transaction))
        return transaction

    def acks(self, delivery: Delivery) -> None:
        self.does(self.model.settle(delivery, "ack"))

    def nacks(self, delivery: Delivery) -> None:
        self.does(self.model.settle(delivery, "nack"))

    def resets(self, connection: str) -> None:
        self.model.dropped(connection, all_read=False)

    def finds(self, match: str) -> pytest.RaisesExc[Violation]:
        return pytest.raises(Violation, match=match)


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
