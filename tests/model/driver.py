"""Drives the reference model without a broker, for tests of the model itself."""

from __future__ import annotations

import pytest

from tests.model.model import Model
from tests.model.rules import Rules
from tests.model.state import Command, Consumer, Delivery, Transaction, Violation

Q = "/queue/a"
DEAD = "/queue/dlq/a"


class Driver:
    """A model with a clock that the test sets; each method reports one event to the model."""

    def __init__(self, *, max_deliveries: int = 10, redelivery_delay: float = 1.0, ack_timeout: float = 0.0) -> None:
        self.now = 100.0
        rules = Rules(max_deliveries, redelivery_delay, ack_timeout, slack=0.0)
        self.model = Model(rules, clock=lambda: self.now)

    def confirm(self, command: Command) -> Command:
        """The command gets its RECEIPT."""
        self.model.receipt(command)
        return command

    def consumer(
        self, connection: str, pattern: str = Q, mode: str = "client-individual", prefetch: int = 0
    ) -> Consumer:
        consumer = self.confirm(self.model.subscribe(connection, "0", pattern, mode, prefetch)).consumer
        assert consumer is not None
        return consumer

    def send(self, *bodies: str, publisher: str = "p", queue: str = Q, receipts: bool = True) -> list[Command]:
        commands = [self.model.send(publisher, queue, body) for body in bodies]
        for command in commands if receipts else ():
            self.model.receipt(command)
        return commands

    def receive(self, connection: str, body: str, count: int = 1, queue: str = Q, **headers: str) -> Delivery:
        if count > 1:
            headers = {"redelivered": "true", "delivery-count": str(count), **headers}
        return self.model.message(connection, "0", body, queue, headers)

    def hold(
        self, connection: str, body: str, *later: str, mode: str = "client-individual", prefetch: int = 0
    ) -> Delivery:
        """A new consumer receives the first of these new messages, and does not acknowledge it."""
        self.consumer(connection, mode=mode, prefetch=prefetch)
        self.send(body, *later)
        return self.receive(connection, body)

    def lose_in_transit(self, connection: str, body: str, mode: str = "client-individual") -> None:
        """A new message may be on its way to a new consumer when this one is lost."""
        self.consumer(connection, mode=mode)
        self.send(body)
        self.reset(connection)

    def receive_dead_letter(self, connection: str, body: str, count: int, reason: str = "max-deliveries") -> Delivery:
        headers = {"dead-letter-reason": reason, "original-destination": Q, "delivery-count": str(count)}
        return self.model.message(connection, "0", body, DEAD, headers)

    def begin(self, connection: str, *bodies: str, queue: str = Q) -> Transaction:
        transaction = self.confirm(self.model.begin(connection, f"tx-{connection}")).transaction
        assert transaction is not None
        for body in bodies:
            self.confirm(self.model.send(connection, queue, body, transaction=transaction))
        return transaction

    def ack(self, delivery: Delivery) -> None:
        self.confirm(self.model.settle(delivery, "ack"))

    def nack(self, delivery: Delivery) -> None:
        self.confirm(self.model.settle(delivery, "nack"))

    def fail(self, delivery: Delivery) -> Delivery:
        """The delivery is negatively acknowledged, and its message delivered again after the delay."""
        self.nack(delivery)
        self.now += 1
        return self.receive(delivery.consumer.connection, delivery.message.body, delivery.count + 1)

    def ack_in_transaction(self, delivery: Delivery, *bodies: str) -> Transaction:
        """A new transaction acknowledges the delivery and sends these messages."""
        transaction = self.begin(delivery.consumer.connection, *bodies)
        self.confirm(self.model.settle(delivery, "ack", transaction))
        return transaction

    def reset(self, connection: str) -> None:
        self.model.dropped(connection, all_read=False)

    def deliverable(self) -> list[str]:
        """Returns the bodies of the messages that must be delivered now."""
        return [each.body for each in self.model.deliverable()]

    def expect_violation(self, match: str, connection: str, body: str, count: int = 1, queue: str = Q) -> None:
        """Receiving this delivery is a violation."""
        with self.raises(match):
            self.receive(connection, body, count, queue)

    def expect_undelivered(self, body: str) -> None:
        """Only this message must be delivered now; at the end of the run the model reports it as lost."""
        assert self.deliverable() == [body]
        self.expect_lost(body)

    def expect_lost(self, bodies: str) -> None:
        """At the end of the run the model reports these messages as lost."""
        with self.raises(f"lost: {bodies}"):
            self.model.finish()

    def raises(self, match: str) -> pytest.RaisesExc[Violation]:
        return pytest.raises(Violation, match=match)
