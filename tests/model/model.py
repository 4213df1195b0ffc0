"""The reference model: which deliveries a correct broker may make, and which it must make.

The test reports each frame to the model when it is sent, and each RECEIPT and MESSAGE when it is received. The model
raises `Violation` at the first event that no correct broker can cause. It does not simulate the broker: it keeps bounds
of what the broker may have done (bounds.py) and checks each delivery against them (checks.py).

 send, settle, commit … ──► tick ──► bounds ◄── receipt
                                       │
 message ──► sent? present? not held? in order? within prefetch? right count? ──► delivery | Violation
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.model import checks
from tests.model.bounds import Bounds
from tests.model.rules import dead_letter_queue, matches
from tests.model.state import (
    NEVER,
    Command,
    Consumer,
    Delivery,
    Message,
    Outcome,
    Presence,
    Return,
    Transaction,
    Violation,
)


class Model(Bounds):
    """All queues of one run. Names of connections, bodies and transactions are the caller's, each used once."""

    # -- frames from clients -----------------------------------------------------------------------------------

    def subscribe(self, connection: str, id: str, pattern: str, mode: str = "auto", prefetch: int = 0) -> Command:
        """SUBSCRIBE is sent; MESSAGEs may come from now on, and must come after its RECEIPT. Prefetch 0: unlimited."""
        tick = self.next_tick()
        consumer = Consumer(connection, id, pattern, mode, prefetch, tick, self.clock())
        self.consumers[connection, id] = consumer
        self.history.append(consumer)
        return Command("subscribe", connection, tick, consumer=consumer)

    def unsubscribe(self, consumer: Consumer) -> Command:
        """UNSUBSCRIBE is sent; MESSAGEs may still come until its RECEIPT."""
        tick = self.request_end(consumer)
        return Command("unsubscribe", consumer.connection, tick, consumer=consumer)

    def send(
        self,
        connection: str,
        queue: str,
        body: str,
        *,
        max_exceptions: int | None = None,
        transaction: Transaction | None = None,
    ) -> Command:
        """SEND is sent, on its own or in an open transaction."""
        tick = self.next_tick()
        limits = {"max-deliveries": self.rules.max_deliveries, "max-exceptions": max_exceptions or NEVER}
        limit = min(limits.values())
        reasons = tuple(reason for reason, most in limits.items() if most == limit)
        message = Message(body, queue, connection, int(limit), reasons, transaction)
        assert body not in self.messages, "each body is used once"
        self.messages[body] = message
        if transaction is None:
            self.enter(message, tick)
        else:
            transaction.sends.append(message)
        return Command("send", connection, tick, message=message, transaction=transaction)

    def covered(self, delivery: Delivery) -> list[Delivery]:
        """Returns what an ACK or NACK of `delivery` covers: in client mode the earlier deliveries, too."""
        if delivery.consumer.mode != "client":
            return [delivery]
        row = delivery.consumer.deliveries
        earlier = row[: row.index(delivery) + 1]
        return [each for each in earlier if not each.over and each.settle is None and each.transaction is None]

    def settle(self, delivery: Delivery, kind: str, transaction: Transaction | None = None) -> Command:
        """ACK or NACK (`kind`) is sent, on its own or in an open transaction."""
        tick = self.next_tick()
        command = Command(kind, delivery.consumer.connection, tick, transaction=transaction)
        if delivery.over or delivery.consumer.over:
            return command  # requeued: the frame has no effect, but gets its RECEIPT
        command.deliveries = self.covered(delivery)
        for each in command.deliveries:
            if transaction is None:
                self.request_settle(each, kind, tick)
            else:
                each.transaction = transaction
                each.doubtful = self.rules.ack_timeout > 0
                transaction.settled.append((each, kind))
        return command

    def begin(self, connection: str, name: str) -> Command:
        """BEGIN is sent."""
        transaction = Transaction(connection, name)
        self.transactions.append(transaction)
        return Command("begin", connection, self.next_tick(), transaction=transaction)

    def commit(self, transaction: Transaction) -> Command:
        """COMMIT is sent: from now on its effects may be visible to others."""
        tick = self.next_tick()
        transaction.outcome = Outcome.REQUESTED
        settled = [each for each, _ in transaction.settled]
        transaction.maybe_requeued = [each for each in settled if each.over or each.consumer.end_requested is not None]
        transaction.requeued = [each for each in transaction.maybe_requeued if not each.doubtful]
        for message in transaction.sends:
            self.enter(message, tick)
        for delivery, kind in transaction.settled:
            self.request_settle(delivery, kind, tick)
        command = Command("commit", transaction.connection, tick, transaction=transaction)
        if transaction.maybe_requeued or (settled and self.rules.ack_timeout > 0):
            # The broker may refuse it and close the connection before the test reads the ERROR. So until the answer is
            # known, the connection's consumers may be lost, and no other frame may be sent there.
            command.doubtful = [
                each for each in self.consumers_of(transaction.connection) if each.end_requested is None
            ]
            for consumer in command.doubtful:
                self.request_end(consumer)
        return command

    def abort(self, transaction: Transaction) -> Command:
        """ABORT is sent; no effect of the transaction was or will be visible."""
        self.undo(transaction)
        return Command("abort", transaction.connection, self.next_tick(), transaction=transaction)

    def disconnect(self, connection: str) -> Command:
        """DISCONNECT is sent (or the connection is half-closed); MESSAGEs may come until the end."""
        tick = self.next_tick()
        for consumer in self.consumers_of(connection):
            self.request_end(consumer)
        return Command("disconnect", connection, tick)

    def dropped(self, connection: str, *, all_read: bool) -> None:
        """The connection has ended. Unless `all_read`, it may have been sent deliveries that were never read."""
        self.next_tick()
        for transaction in self.transactions:
            if transaction.connection == connection and transaction.outcome is Outcome.OPEN:
                self.undo(transaction)
            elif transaction.connection == connection and transaction.outcome is Outcome.REQUESTED:
                transaction.outcome = Outcome.UNKNOWN
        for consumer in self.consumers_of(connection):
            self.request_end(consumer)
            if not all_read and consumer.mode == "auto":
                self.consume_perhaps(consumer)
            self.end(consumer)

    # -- frames from the broker --------------------------------------------------------------------------------

    def receipt(self, command: Command) -> None:
        """The RECEIPT of `command` came: the command took effect."""
        tick = self.next_tick()
        kind, transaction = command.kind, command.transaction
        if kind == "commit":
            assert transaction is not None
            self.confirm_commit(transaction, tick)
            for consumer in command.doubtful:
                consumer.end_requested = None
        elif transaction is not None:  # part of a transaction now; the effect of ABORT was recorded when it was sent
            for delivery in command.deliveries:
                delivery.doubtful = self.may_time_out(delivery)
        elif kind == "subscribe":
            assert command.consumer is not None
            command.consumer.live = True
        elif kind == "unsubscribe":
            assert command.consumer is not None
            self.end(command.consumer)
        elif kind == "send":
            assert command.message is not None
            self.mark_placed(command.message, tick)
        elif kind in ("ack", "nack"):
            for delivery in command.deliveries:
                self.confirm_settle(delivery)

    def refused(self, command: Command) -> None:
        """COMMIT was answered by ERROR `E-TX-LOST`: it had no effect, and there must be a reason."""
        self.next_tick()
        transaction = command.transaction
        if command.kind != "commit" or transaction is None:
            raise Violation(f"{command} was refused")
        if transaction.outcome is Outcome.COMMITTED:
            raise Violation(f"COMMIT of {transaction.name} was refused, but took effect")
        timed_out = any(self.may_time_out(delivery) for delivery, _ in transaction.settled)
        if not transaction.maybe_requeued and not timed_out:
            raise Violation(f"COMMIT of {transaction.name} was refused, but none of its deliveries was requeued")
        self.undo(transaction)

    def message(
        self, connection: str, subscription: str, body: str, destination: str, headers: Mapping[str, str]
    ) -> Delivery:
        """A MESSAGE came. Returns the delivery if the model allows it."""
        tick, now = self.next_tick(), self.clock()
        consumer = self.consumers.get((connection, subscription))
        if consumer is None or consumer.over:
            raise Violation(f"{body} came for {connection}/{subscription}, which is no active subscription")
        message = self.messages.get(body)
        if message is None:
            raise Violation(f"{body} came, which nobody sent")
        if not matches(consumer.pattern, destination):
            raise Violation(f"{body} of {destination} came to {consumer}")
        count = checks.delivery_count(message, destination, headers)
        if checks.is_late_read(self, consumer, message, count):
            return self.record_late_read(message, consumer, count, tick, now)
        if message.presence is Presence.GONE:
            raise Violation(f"{body} came to {consumer}, though it was {message.why}")
        if message.sent is None:
            raise Violation(f"{body} came before its transaction was committed")
        self.release(message, consumer, tick)
        checks.check_queue(message, destination, headers)
        if destination == dead_letter_queue(message.queue):
            self.mark_dead(message)
        checks.check_delay(self, message, now)
        first = message.returned is Return.FRESH and not message.dead and count == 1
        after = checks.earliest_tick(self, message, consumer)
        not_before = max(consumer.subscribed_at, message.available_at)
        delivery = Delivery(message, consumer, after, tick, count, not_before, now, first)
        checks.check_count(self, delivery, headers)
        checks.check_prefetch(self, delivery)
        checks.check_order(self, delivery)
        checks.check_contiguous(self, delivery)
        self.record(delivery)
        return delivery

    # -- at rest -----------------------------------------------------------------------------------------------

    def deliverable(self) -> list[Message]:
        """Returns the messages that must come without further frames: certainly present, not held, wanted."""
        open_to: dict[str, bool] = {}

        def has_room(queue: str) -> bool:
            if queue not in open_to:
                open_to[queue] = any(self.has_room(each, queue) for each in self.history if not each.over)
            return open_to[queue]

        found = []
        for message in self.messages.values():
            if not message.certain or message.presence is not Presence.HERE or not self.is_free(message):
                continue
            if all(has_room(home) for home in self.homes(message)):
                found.append(message)
        return found

    def resolve_unknown(self) -> None:
        """Nothing is in transit: undoes each transaction of unknown outcome whose messages did not come."""
        for transaction in self.transactions:
            missing = any(each.presence is Presence.HERE and not each.received for each in transaction.sends)
            if transaction.outcome is Outcome.UNKNOWN and missing:
                self.undo(transaction)

    def finish(self) -> None:
        """All queues were drained and acknowledged: no message may be left."""
        lost = [each for each in self.messages.values() if each.certain and each.presence is Presence.HERE]
        if lost:
            rows = ", ".join(f"{each.body} ({each.home}, {each.returned.value})" for each in lost)
            raise Violation(f"lost: {rows}")

    def quiescent(self) -> None:
        """The broker has nothing in transit. It has requeued all messages that lost consumers held."""
        tick = self.next_tick()
        for consumer in self.history:
            if consumer.over:
                for queue in {message.home for message in self.messages.values()}:
                    consumer.closed.setdefault(queue, tick)


def describe(messages: Iterable[Message]) -> str:
    """Lists messages in one line, for failures."""
    return ", ".join(f"{each.body} in {each.home} ({each.returned.value})" for each in messages)
