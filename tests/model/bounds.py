"""What the broker may have done with each message, as bounds that the model narrows with every event.

Between a frame and its RECEIPT the frame's effect may or may not have happened, and frames of different connections may
be processed in another order than they were sent. So the model does not simulate the broker. For each message it keeps
bounds: whether the message exists for certain, perhaps, or not at all; at least and at most how many failures it had;
who holds it; and when each delivery can have happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.model.rules import Rules, dead_letter_queue, matches
from tests.model.state import Consumer, Delivery, Message, Outcome, Presence, Return, Transaction, Violation


@dataclass(frozen=True)
class Cause:
    """One way in which a held message may have become available again."""

    how: Return
    available_at: float
    failures: int


class Bounds:
    """The messages, consumers and transactions of one run, and what may have happened to them."""

    def __init__(self, rules: Rules | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules or Rules()
        self.messages: dict[str, Message] = {}
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.history: list[Consumer] = []
        self.transactions: list[Transaction] = []
        self.log: dict[str, list[Delivery]] = {}
        self.clock = clock
        self.tick = 0
        self._numbers = 0

    # -- messages and consumers --------------------------------------------------------------------------------

    def next_tick(self) -> int:
        """Advances the event counter."""
        self.tick += 1
        return self.tick

    def consumers_of(self, connection: str) -> list[Consumer]:
        """Returns the connection's consumers that have not ended."""
        return [each for each in self.history if each.connection == connection and not each.over]

    def enter(self, message: Message, tick: int) -> None:
        """The message may be in its queue from this tick on."""
        self._numbers += 1
        message.number, message.sent, message.sent_at = self._numbers, tick, self.clock()
        message.available_at = message.sent_at

    def mark_placed(self, message: Message, tick: int) -> None:
        """The message is in its queue for certain by this tick."""
        message.certain = True
        message.placed = message.placed or tick

    def request_end(self, consumer: Consumer) -> int:
        """The consumer may be lost from this tick on."""
        tick = self.next_tick()
        if consumer.end_requested is None:
            consumer.end_requested, consumer.end_at = tick, self.clock()
        return tick

    def end(self, consumer: Consumer) -> None:
        """The consumer gets no more MESSAGEs; the messages that it held are requeued."""
        if consumer.over:
            return
        for delivery in consumer.deliveries:
            if not delivery.over:
                self.free(delivery, self.causes(delivery))
        consumer.over = True

    def request_settle(self, delivery: Delivery, kind: str, tick: int) -> None:
        """The ACK or NACK of the delivery was sent."""
        delivery.settle, delivery.settle_requested, delivery.settle_at = kind, tick, self.clock()
        delivery.consumer.settles.append(tick)

    def confirm_settle(self, delivery: Delivery) -> None:
        """The RECEIPT of the delivery's ACK or NACK (or of its COMMIT) came."""
        if delivery.over:
            return
        message = delivery.message
        if delivery.settle == "nack":
            self.free(delivery, [each for each in self.causes(delivery) if each.how is Return.FAILED])
        elif delivery.doubtful or (self.may_time_out(delivery) and delivery.transaction is None):
            self.free(delivery, self.causes(delivery))
            message.presence = Presence.MAYBE
        else:
            delivery.over, message.holder = True, None
            self.remove(message, "acknowledged")

    def remove(self, message: Message, why: str) -> None:
        """The message is gone and must not be delivered again."""
        message.presence, message.why = Presence.GONE, why

    def may_time_out(self, delivery: Delivery) -> bool:
        """Whether its ack_timeout may have passed in the broker."""
        timeout = self.rules.ack_timeout
        return timeout > 0 and self.clock() >= delivery.not_before + timeout - self.rules.slack

    def causes(self, delivery: Delivery) -> list[Cause]:
        """Returns every way other than an ACK in which this delivery may have ended."""
        found = []
        wait = self.rules.delay(delivery.message.failures_min + 1)
        if delivery.consumer.end_requested is not None:
            found.append(Cause(Return.LOST, delivery.consumer.end_at, 0))
        if delivery.settle == "nack":
            found.append(Cause(Return.FAILED, delivery.settle_at + wait, 1))
        if self.may_time_out(delivery):
            found.append(Cause(Return.FAILED, delivery.not_before + self.rules.ack_timeout + wait, 1))
        return found

    def free(self, delivery: Delivery, causes: list[Cause]) -> None:
        """The delivery ended by one of `causes`: the message waits again, unless its ACK took effect first."""
        message = delivery.message
        delivery.over = True
        if message.holder is not delivery:
            return
        message.holder = None
        lost = all(cause.how is Return.LOST for cause in causes)
        message.returned = Return.LOST if lost else Return.FAILED
        message.lost_by = delivery.consumer if lost else None
        message.available_at = min((cause.available_at for cause in causes), default=0.0)
        message.failures_min += min((cause.failures for cause in causes), default=0)
        message.failures_max += max((cause.failures for cause in causes), default=0)
        if delivery.settle == "ack":
            message.presence = Presence.MAYBE
            message.in_doubt = None if delivery.doubtful else delivery.transaction
        if message.dead and message.failures_max > 0:
            message.presence = Presence.MAYBE  # a message that fails in a dead-letter queue is dropped

    def release(self, message: Message, consumer: Consumer, tick: int) -> None:
        """The message was delivered (again): its holder must have lost it, and that holder's ACK had no effect."""
        holder = message.holder
        if holder is not None:
            causes = self.causes(holder)
            if not causes:
                state = "its ACK was sent" if holder.settle == "ack" else "it is held"
                raise Violation(f"{message.body} came to {consumer}, though {state} by {holder.consumer}")
            self.free(holder, causes)
        if message.in_doubt is not None:
            transaction, message.in_doubt = message.in_doubt, None
            self.undo(transaction)
        if message.lost_by is not None:
            message.lost_by.closed.setdefault(message.home, tick)

    def consume_perhaps(self, consumer: Consumer) -> None:
        """An auto consumer was lost with unread input: it may have consumed any message that was available."""
        for message in self.messages.values():
            free = message.holder is None or self.causes(message.holder)
            visible = message.sent is not None and message.presence is Presence.HERE
            if visible and free and self._could_be_in(message, consumer.pattern):
                message.presence = Presence.MAYBE

    @staticmethod
    def _could_be_in(message: Message, pattern: str) -> bool:
        return matches(pattern, message.queue) or matches(pattern, dead_letter_queue(message.queue))

    # -- transactions ------------------------------------------------------------------------------------------

    def confirm_commit(self, transaction: Transaction, tick: int) -> None:
        """The RECEIPT of COMMIT came."""
        if transaction.outcome is Outcome.UNDONE:
            raise Violation(f"COMMIT of {transaction.name} got its RECEIPT, but took no effect")
        for delivery in transaction.requeued:
            raise Violation(f"{transaction.name} was committed, though {delivery.message.body} had been requeued")
        transaction.outcome = Outcome.COMMITTED
        for message in transaction.sends:
            self.mark_placed(message, tick)
        for delivery, _ in transaction.settled:
            self.confirm_settle(delivery)

    def prove_committed(self, transaction: Transaction) -> None:
        """One of the transaction's messages was delivered, so all of the transaction took effect."""
        if transaction.outcome not in (Outcome.REQUESTED, Outcome.UNKNOWN):
            return
        for message in transaction.sends:
            message.certain = True
        for delivery, _ in transaction.settled:
            if delivery.message.in_doubt is transaction:
                delivery.message.in_doubt = None
                self.remove(delivery.message, f"acknowledged in {transaction.name}, of which a message came")
            elif self._came_back(delivery) and transaction.outcome is Outcome.UNKNOWN:
                raise Violation(f"only a part of {transaction.name} took effect: {delivery.message.body} was requeued")
        if transaction.outcome is Outcome.UNKNOWN:
            transaction.outcome = Outcome.COMMITTED

    @staticmethod
    def _came_back(delivery: Delivery) -> bool:
        """Whether its message was delivered again, though its ACK must have taken effect."""
        return delivery.settle == "ack" and delivery.message.deliveries[-1] is not delivery and not delivery.doubtful

    def undo(self, transaction: Transaction) -> None:
        """The transaction had no effect: neither its messages nor its ACKs and NACKs."""
        if any(message.received for message in transaction.sends):
            raise Violation(f"only a part of {transaction.name} took effect: a message came, but its ACKs were ignored")
        transaction.outcome = Outcome.UNDONE
        for message in transaction.sends:
            self.remove(message, f"sent in {transaction.name}, which was undone")
        for delivery, _ in transaction.settled:
            delivery.settle = delivery.settle_requested = delivery.transaction = None
            if delivery.message.in_doubt is transaction:
                delivery.message.in_doubt = None
                delivery.message.presence = Presence.HERE

    def mark_dead(self, message: Message) -> None:
        """The message is in its dead-letter queue, where its count of failures starts again."""
        if not message.dead:
            message.dead = True
            message.failures_min = message.failures_max = 0
            message.available_at = message.sent_at

    # -- deliveries --------------------------------------------------------------------------------------------

    def record_late_read(self, message: Message, consumer: Consumer, count: int, tick: int, now: float) -> Delivery:
        """Records an older delivery that was read after a newer one."""
        if any(each.count == count for each in message.deliveries):
            raise Violation(f"{message.body} came twice as delivery {count}")
        delivery = Delivery(message, consumer, 0, tick, count, consumer.subscribed_at, now, False, over=True)
        consumer.deliveries.append(delivery)
        message.deliveries.insert(-1, delivery)
        return delivery

    def record(self, delivery: Delivery) -> None:
        """Records a correct delivery, and what it proves about its message, transaction and publisher."""
        message, consumer = delivery.message, delivery.consumer
        consumer.deliveries.append(delivery)
        message.deliveries.append(delivery)
        self.log.setdefault(message.home, []).append(delivery)
        message.received = message.certain = True
        message.presence = Presence.HERE
        if message.transaction is None:
            self._imply_earlier(message)
        else:
            self.prove_committed(message.transaction)
        if consumer.mode == "auto":
            delivery.over = True
            self.remove(message, f"consumed by {consumer}")
        else:
            message.holder = delivery

    def _imply_earlier(self, message: Message) -> None:
        """A connection's frames take effect in order, so the messages it sent before are in their queues, too."""
        for other in self.messages.values():
            mine = other.publisher == message.publisher and other.transaction is None
            if mine and other.sent is not None and other.number < message.number:
                other.certain = True

    def may_be_in_transit(self, queue: str, since: int, until: int) -> bool:
        """Whether messages of some lost consumer may have been on their way back between these ticks."""
        return any(each.in_transit(queue, since, until) for each in self.history)

    def is_overdue(self, delivery: Delivery) -> bool:
        """Whether its ack_timeout has passed for certain."""
        timeout = self.rules.ack_timeout
        return timeout > 0 and delivery.settle is None and self.clock() > delivery.received_at + timeout

    def is_free(self, message: Message) -> bool:
        """Whether nobody holds it (any longer)."""
        return message.holder is None or self.is_overdue(message.holder)

    def homes(self, message: Message) -> list[str]:
        """Returns the queue it waits in; two queues if the model cannot know whether it is a dead letter yet."""
        dead, failing = dead_letter_queue(message.queue), int(message.holder is not None)
        if message.dead or message.failures_min + failing >= message.limit:
            return [dead]
        return [message.queue, dead] if message.failures_max + failing >= message.limit else [message.queue]

    def has_room(self, consumer: Consumer, queue: str) -> bool:
        """Whether the broker must deliver a message of `queue` to this consumer if one is available."""
        if not consumer.live or consumer.end_requested is not None or not matches(consumer.pattern, queue):
            return False
        if consumer.mode == "auto" or consumer.prefetch == 0:
            return True
        held = sum(not each.over and not self.is_overdue(each) for each in consumer.deliveries)
        return held < consumer.prefetch
