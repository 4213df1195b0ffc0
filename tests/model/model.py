"""The reference model: what a correct broker may deliver, and what it owes.

The harness tells the model each frame as it leaves, each RECEIPT and each MESSAGE as it comes; the model raises
`Violation` at the first event that no correct broker can cause. Between a frame and its RECEIPT its effect may have
happened or not, and frames of different connections may be read in another order than they were sent. So the model does
not replay the broker: it keeps bounds on what each message went through (is it there for certain, perhaps, or not;
at least and at most how many failures; held by whom) and on when each delivery can have happened. A judgement is
passed only where those bounds leave no way out.

 send, settle, commit … ──► tick ──► bounds ◄── receipt
                                       │
 message ──► visible? there? not held? in turn? within prefetch? counted right? ──► delivery | Violation
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.model.state import (
    NEVER,
    Command,
    Consumer,
    Delivery,
    Message,
    Outcome,
    Presence,
    Return,
    Rules,
    Transaction,
    Violation,
    dead_letter_queue,
    matches,
)


@dataclass(frozen=True)
class Cause:
    """One way in which a held message may have become free."""

    how: Return
    available_at: float
    failures: int


class Model:
    """All queues of one run. Names of connections, bodies and transactions are the caller's, each used once."""

    def __init__(self, rules: Rules | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules or Rules()
        self.messages: dict[str, Message] = {}
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.history: list[Consumer] = []
        self.transactions: list[Transaction] = []
        self.log: dict[str, list[Delivery]] = {}
        self._clock = clock
        self._tick = 0
        self._numbers = 0

    # -- what clients do ---------------------------------------------------------------------------------------

    def subscribe(self, connection: str, id: str, pattern: str, mode: str = "auto", prefetch: int = 0) -> Command:
        """SUBSCRIBE leaves; MESSAGEs may come from now on, and must from its RECEIPT on. Prefetch 0: unlimited."""
        tick = self._next()
        consumer = Consumer(connection, id, pattern, mode, prefetch, tick, self._clock())
        self.consumers[connection, id] = consumer
        self.history.append(consumer)
        return Command("subscribe", connection, tick, consumer=consumer)

    def unsubscribe(self, consumer: Consumer) -> Command:
        """UNSUBSCRIBE leaves; MESSAGEs may still come until its RECEIPT."""
        tick = self._end_asked(consumer)
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
        """SEND leaves, on its own or into an open transaction."""
        tick = self._next()
        limits = {"max-deliveries": self.rules.max_deliveries, "max-exceptions": max_exceptions or NEVER}
        limit = min(limits.values())
        reasons = tuple(reason for reason, most in limits.items() if most == limit)
        message = Message(body, queue, connection, int(limit), reasons, transaction)
        assert body not in self.messages, "bodies name messages"
        self.messages[body] = message
        if transaction is None:
            self._enters(message, tick)
        else:
            transaction.sends.append(message)
        return Command("send", connection, tick, message=message, transaction=transaction)

    def covered(self, delivery: Delivery) -> list[Delivery]:
        """What an ACK or NACK of `delivery` speaks for: in client mode all that came before it, too."""
        if delivery.consumer.mode != "client":
            return [delivery]
        row = delivery.consumer.deliveries
        earlier = row[: row.index(delivery) + 1]
        return [each for each in earlier if not each.over and each.settle is None and each.transaction is None]

    def settle(self, delivery: Delivery, kind: str, transaction: Transaction | None = None) -> Command:
        """ACK or NACK (`kind`) leaves, on its own or into an open transaction."""
        tick = self._next()
        command = Command(kind, delivery.consumer.connection, tick, transaction=transaction)
        if delivery.over or delivery.consumer.over:
            return command  # taken back: a no-op with its RECEIPT
        command.deliveries = self.covered(delivery)
        for each in command.deliveries:
            if transaction is None:
                self._settle_asked(each, kind, tick)
            else:
                each.transaction = transaction
                each.doubtful = self.rules.ack_timeout > 0
                transaction.settled.append((each, kind))
        return command

    def begin(self, connection: str, name: str) -> Command:
        """BEGIN leaves."""
        transaction = Transaction(connection, name)
        self.transactions.append(transaction)
        return Command("begin", connection, self._next(), transaction=transaction)

    def commit(self, transaction: Transaction) -> Command:
        """COMMIT leaves: from now on others may see it."""
        tick = self._next()
        transaction.outcome = Outcome.ASKED
        settled = [each for each, _ in transaction.settled]
        transaction.gone = [each for each in settled if each.over or each.consumer.end_asked is not None]
        transaction.lost = [each for each in transaction.gone if not each.doubtful]
        for message in transaction.sends:
            self._enters(message, tick)
        for delivery, kind in transaction.settled:
            self._settle_asked(delivery, kind, tick)
        command = Command("commit", transaction.connection, tick, transaction=transaction)
        if transaction.gone or (settled and self.rules.ack_timeout > 0):
            # It may be refused, and the connection be closed, before anybody reads so: until its answer is known
            # the connection's consumers may be lost. Nothing else may leave there in between.
            command.doubtful = [each for each in self._of(transaction.connection) if each.end_asked is None]
            for consumer in command.doubtful:
                self._end_asked(consumer)
        return command

    def abort(self, transaction: Transaction) -> Command:
        """ABORT leaves; nothing of it was ever visible, nor will be."""
        self._undo(transaction)
        return Command("abort", transaction.connection, self._next(), transaction=transaction)

    def disconnect(self, connection: str) -> Command:
        """DISCONNECT leaves (or the connection is half-closed); MESSAGEs may come until the end."""
        tick = self._next()
        for consumer in self._of(connection):
            self._end_asked(consumer)
        return Command("disconnect", connection, tick)

    def dropped(self, connection: str, *, all_read: bool) -> None:
        """The connection is over. Unless all it was sent was read, more may have been delivered to it than was seen."""
        self._next()
        for transaction in self.transactions:
            if transaction.connection == connection and transaction.outcome is Outcome.OPEN:
                self._undo(transaction)
            elif transaction.connection == connection and transaction.outcome is Outcome.ASKED:
                transaction.outcome = Outcome.UNKNOWN
        for consumer in self._of(connection):
            self._end_asked(consumer)
            if not all_read and consumer.mode == "auto":
                self._perhaps_consumed(consumer)
            self._ended(consumer)

    # -- what the broker says ----------------------------------------------------------------------------------

    def receipt(self, command: Command) -> None:
        """The RECEIPT of `command` came: all of it took effect."""
        tick = self._next()
        kind, transaction = command.kind, command.transaction
        if kind == "commit":
            assert transaction is not None
            self._committed(transaction, tick)
            for consumer in command.doubtful:
                consumer.end_asked = None
        elif transaction is not None:  # accepted into it; ABORT was booked when it left
            for delivery in command.deliveries:
                delivery.doubtful = self._may_time_out(delivery)
        elif kind == "subscribe":
            assert command.consumer is not None
            command.consumer.live = True
        elif kind == "unsubscribe":
            assert command.consumer is not None
            self._ended(command.consumer)
        elif kind == "send":
            assert command.message is not None
            self._placed(command.message, tick)
        elif kind in ("ack", "nack"):
            for delivery in command.deliveries:
                self._settled(delivery)

    def refused(self, command: Command) -> None:
        """COMMIT was answered by ERROR `E-TX-LOST`: nothing of it took effect, and there was a reason."""
        self._next()
        transaction = command.transaction
        if command.kind != "commit" or transaction is None:
            raise Violation(f"{command} was refused")
        if transaction.outcome is Outcome.COMMITTED:
            raise Violation(f"COMMIT of {transaction.name} was refused, but some of it took effect")
        if not transaction.gone and not any(self._may_time_out(delivery) for delivery, _ in transaction.settled):
            raise Violation(f"COMMIT of {transaction.name} was refused, but nothing in it was taken back")
        self._undo(transaction)

    def message(
        self, connection: str, subscription: str, body: str, destination: str, headers: Mapping[str, str]
    ) -> Delivery:
        """A MESSAGE came. Returns it as a delivery, if it is one the model allows."""
        tick, now = self._next(), self._clock()
        consumer = self.consumers.get((connection, subscription))
        if consumer is None or consumer.over:
            raise Violation(f"{body} came for {connection}/{subscription}, which is no subscription (any more)")
        message = self.messages.get(body)
        if message is None:
            raise Violation(f"{body} came, which nobody sent")
        if not matches(consumer.pattern, destination):
            raise Violation(f"{body} of {destination} came to {consumer}")
        count = self._count(message, destination, headers)
        if self._is_late_sight(consumer, message, count):
            return self._late_sight(message, consumer, count, tick, now)
        if message.presence is Presence.GONE:
            raise Violation(f"{body} came to {consumer}, though it was {message.why}")
        if message.sent is None:
            raise Violation(f"{body} came before its transaction was committed")
        self._release(message, consumer, tick)
        self._check_place(message, destination, headers)
        if now < message.available_at - self.rules.slack:
            early = message.available_at - now
            raise Violation(f"{body} came {early * 1000:.0f} ms before its redelivery was due")
        first = message.returned is Return.FRESH and not message.dead and count == 1
        after = self._after(message, consumer)
        not_before = max(consumer.asked_at, message.available_at)
        delivery = Delivery(message, consumer, after, tick, count, not_before, now, first)
        self._check_count(delivery, headers)
        self._check_prefetch(delivery)
        self._check_turn(delivery)
        self._check_together(delivery)
        self._record(delivery)
        return delivery

    # -- at rest -----------------------------------------------------------------------------------------------

    def owed(self) -> list[Message]:
        """Messages that must come without anybody doing anything: there for certain, free, and a consumer has room."""
        open_to: dict[str, bool] = {}

        def has_room(queue: str) -> bool:
            if queue not in open_to:
                open_to[queue] = any(self._has_room(each, queue) for each in self.history if not each.over)
            return open_to[queue]

        found = []
        for message in self.messages.values():
            if not message.certain or message.presence is not Presence.HERE or not self._is_free(message):
                continue
            if all(has_room(home) for home in self._homes(message)):
                found.append(message)
        return found

    def fenced(self) -> None:
        """Nothing more is on its way: a transaction of unknown outcome whose messages did not come is undone."""
        for transaction in self.transactions:
            missing = any(each.presence is Presence.HERE and not each.seen for each in transaction.sends)
            if transaction.outcome is Outcome.UNKNOWN and missing:
                self._undo(transaction)

    def finish(self) -> None:
        """Everything was drained and acknowledged: nothing may be left."""
        lost = [each for each in self.messages.values() if each.certain and each.presence is Presence.HERE]
        if lost:
            rows = ", ".join(f"{each.body} ({each.home}, {each.returned.value})" for each in lost)
            raise Violation(f"lost: {rows}")

    def settled_down(self) -> None:
        """The broker is known to have nothing in motion: whatever lost consumers held is back."""
        tick = self._next()
        for consumer in self.history:
            if consumer.over:
                for queue in {message.home for message in self.messages.values()}:
                    consumer.closed.setdefault(queue, tick)

    # -- causes and effects ------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._tick += 1
        return self._tick

    def _of(self, connection: str) -> list[Consumer]:
        return [each for each in self.history if each.connection == connection and not each.over]

    def _enters(self, message: Message, tick: int) -> None:
        self._numbers += 1
        message.number, message.sent, message.sent_at = self._numbers, tick, self._clock()
        message.available_at = message.sent_at

    def _placed(self, message: Message, tick: int) -> None:
        message.certain = True
        message.placed = message.placed or tick

    def _end_asked(self, consumer: Consumer) -> int:
        tick = self._next()
        if consumer.end_asked is None:
            consumer.end_asked, consumer.end_at = tick, self._clock()
        return tick

    def _ended(self, consumer: Consumer) -> None:
        """No more MESSAGEs for it; what it held goes back."""
        if consumer.over:
            return
        for delivery in consumer.deliveries:
            if not delivery.over:
                self._free(delivery, self._causes(delivery))
        consumer.over = True

    def _settle_asked(self, delivery: Delivery, kind: str, tick: int) -> None:
        delivery.settle, delivery.settle_asked, delivery.settle_at = kind, tick, self._clock()
        delivery.consumer.settles.append(tick)

    def _settled(self, delivery: Delivery) -> None:
        """The RECEIPT of its ACK or NACK (or of their COMMIT) came."""
        if delivery.over:
            return
        message = delivery.message
        if delivery.settle == "nack":
            self._free(delivery, [each for each in self._causes(delivery) if each.how is Return.FAILED])
        elif delivery.doubtful or (self._may_time_out(delivery) and delivery.transaction is None):
            self._free(delivery, self._causes(delivery))
            message.presence = Presence.MAYBE
        else:
            delivery.over, message.holder = True, None
            self._gone(message, "acknowledged")

    def _gone(self, message: Message, why: str) -> None:
        message.presence, message.why = Presence.GONE, why

    def _may_time_out(self, delivery: Delivery) -> bool:
        timeout = self.rules.ack_timeout
        return timeout > 0 and self._clock() >= delivery.not_before + timeout - self.rules.slack

    def _causes(self, delivery: Delivery) -> list[Cause]:
        """Every way in which this delivery may have been ended other than by its ACK."""
        found = []
        wait = self.rules.delay(delivery.message.failures_min + 1)
        if delivery.consumer.end_asked is not None:
            found.append(Cause(Return.LOST, delivery.consumer.end_at, 0))
        if delivery.settle == "nack":
            found.append(Cause(Return.FAILED, delivery.settle_at + wait, 1))
        if self._may_time_out(delivery):
            found.append(Cause(Return.FAILED, delivery.not_before + self.rules.ack_timeout + wait, 1))
        return found

    def _free(self, delivery: Delivery, causes: list[Cause]) -> None:
        """Whatever of `causes` it was, the delivery is over, and the message waits again unless its ACK came first."""
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
            message.presence = Presence.MAYBE  # one that fails in a dead-letter queue is dropped

    def _release(self, message: Message, consumer: Consumer, tick: int) -> None:
        """The message came (again): whoever held it must have lost it, and its ACK must not have counted."""
        holder = message.holder
        if holder is not None:
            causes = self._causes(holder)
            if not causes:
                state = "its ACK was sent" if holder.settle == "ack" else "it is held"
                raise Violation(f"{message.body} came to {consumer}, though {state} by {holder.consumer}")
            self._free(holder, causes)
        if message.in_doubt is not None:
            transaction, message.in_doubt = message.in_doubt, None
            self._undo(transaction)
        if message.lost_by is not None:
            message.lost_by.closed.setdefault(message.home, tick)

    def _perhaps_consumed(self, consumer: Consumer) -> None:
        """An auto consumer was lost with unread input: what was free may have been delivered to it, and so consumed."""
        for message in self.messages.values():
            free = message.holder is None or self._causes(message.holder)
            visible = message.sent is not None and message.presence is Presence.HERE
            if visible and free and self._could_be_in(message, consumer.pattern):
                message.presence = Presence.MAYBE

    @staticmethod
    def _could_be_in(message: Message, pattern: str) -> bool:
        return matches(pattern, message.queue) or matches(pattern, dead_letter_queue(message.queue))

    def _committed(self, transaction: Transaction, tick: int) -> None:
        """COMMIT's RECEIPT."""
        if transaction.outcome is Outcome.UNDONE:
            raise Violation(f"{transaction.name} got the RECEIPT of its COMMIT, but some of it did not take effect")
        for delivery in transaction.lost:
            raise Violation(f"{transaction.name} was committed, though {delivery.message.body} had been taken back")
        transaction.outcome = Outcome.COMMITTED
        for message in transaction.sends:
            self._placed(message, tick)
        for delivery, _ in transaction.settled:
            self._settled(delivery)

    def _proven(self, transaction: Transaction) -> None:
        """One of its messages was seen, so all of it took effect."""
        if transaction.outcome not in (Outcome.ASKED, Outcome.UNKNOWN):
            return
        for message in transaction.sends:
            message.certain = True
        for delivery, _ in transaction.settled:
            if delivery.message.in_doubt is transaction:
                delivery.message.in_doubt = None
                self._gone(delivery.message, f"acknowledged in {transaction.name}, of which a message was seen")
            elif self._came_back(delivery) and transaction.outcome is Outcome.UNKNOWN:
                raise Violation(f"half of {transaction.name}: {delivery.message.body} had come back")
        if transaction.outcome is Outcome.UNKNOWN:
            transaction.outcome = Outcome.COMMITTED

    @staticmethod
    def _came_back(delivery: Delivery) -> bool:
        """Whether its message was delivered again, though its ACK must have counted."""
        return delivery.settle == "ack" and delivery.message.deliveries[-1] is not delivery and not delivery.doubtful

    def _undo(self, transaction: Transaction) -> None:
        """Nothing of it counts: not its messages, not its ACKs."""
        if any(message.seen for message in transaction.sends):
            raise Violation(f"half of {transaction.name}: some of its messages came, but its ACKs did not count")
        transaction.outcome = Outcome.UNDONE
        for message in transaction.sends:
            self._gone(message, f"sent in {transaction.name}, which was undone")
        for delivery, _ in transaction.settled:
            delivery.settle = delivery.settle_asked = delivery.transaction = None
            if delivery.message.in_doubt is transaction:
                delivery.message.in_doubt = None
                delivery.message.presence = Presence.HERE

    # -- judgements --------------------------------------------------------------------------------------------

    def _count(self, message: Message, destination: str, headers: Mapping[str, str]) -> int:
        """The delivery's number by its headers, which must agree with each other."""
        text = headers.get("delivery-count")
        if text is not None and (not text.isdigit() or int(text) < 1):
            raise Violation(f"{message.body}: delivery-count:{text}")
        number = int(text or 1)
        if destination == dead_letter_queue(message.queue):
            return number
        redelivered = headers.get("redelivered")
        if (redelivered is not None) != (text is not None) or redelivered not in (None, "true"):
            raise Violation(f"{message.body}: redelivered:{redelivered} beside delivery-count:{text}")
        if text is not None and number < 2:
            raise Violation(f"{message.body}: a first delivery says delivery-count:{text}")
        return number

    def _is_late_sight(self, consumer: Consumer, message: Message, count: int) -> bool:
        """Whether this is an older delivery, to a consumer that has lost it since, read after the newer one."""
        given_up = consumer.end_asked is not None or self.rules.ack_timeout > 0
        newer = any(each.count > count for each in message.deliveries)
        return newer and given_up and not message.dead and consumer.mode != "auto"

    def _late_sight(self, message: Message, consumer: Consumer, count: int, tick: int, now: float) -> Delivery:
        if any(each.count == count for each in message.deliveries):
            raise Violation(f"{message.body} came twice as delivery {count}")
        delivery = Delivery(message, consumer, 0, tick, count, consumer.asked_at, now, False, over=True)
        consumer.deliveries.append(delivery)
        message.deliveries.insert(-1, delivery)
        return delivery

    def _check_place(self, message: Message, destination: str, headers: Mapping[str, str]) -> None:
        """The queue it came from, and, out of a dead-letter queue, what it says about itself."""
        dead = dead_letter_queue(message.queue)
        if destination not in (message.queue, dead):
            raise Violation(f"{message.body} of {message.queue} came from {destination}")
        if destination == message.queue:
            if message.certainly_dead:
                failures = message.failures_min
                raise Violation(f"{message.body} came from {destination} after {failures} failures of {message.limit}")
            return
        wanted = {"dead-letter-reason": message.reasons, "original-destination": (message.queue,)}
        for name, values in wanted.items():
            if headers.get(name) not in values:
                expected = " or ".join(values)
                raise Violation(f"dead letter {message.body}: {name}:{headers.get(name)}, not {expected}")
        if "delivery-count" not in headers:
            raise Violation(f"dead letter {message.body} without delivery-count")
        if not message.dead:
            if message.failures_max < message.limit:
                most = message.failures_max
                raise Violation(f"{message.body} is a dead letter after at most {most} failures of {message.limit}")
            message.dead = True
            message.failures_min = message.failures_max = 0
            message.available_at = message.sent_at

    def _bounces(self, message: Message) -> int:
        """How often at most it was delivered unseen: to consumers that were lost, or past an ack_timeout."""
        since = message.sent or 0
        unseen = sum(each.may_bounce(message.queue, since, self._tick) for each in self.history)
        if self.rules.ack_timeout > 0:
            unseen += int((self._clock() - message.sent_at + self.rules.slack) / self.rules.ack_timeout)
        return unseen

    def _check_count(self, delivery: Delivery, headers: Mapping[str, str]) -> None:
        message, count = delivery.message, delivery.count
        seen, bounces = len(message.deliveries), self._bounces(message)
        if message.dead:
            if "redelivered" not in headers and not seen <= count <= seen + bounces:
                raise Violation(f"dead letter {message.body}: delivery-count {count} after {seen} deliveries")
            return
        low = max((each.count for each in message.deliveries), default=0) + 1
        if not low <= count <= 1 + seen + bounces:
            raise Violation(
                f"{message.body}: delivery-count {count}, but {seen} deliveries were seen and {bounces} may be unseen"
            )

    def _check_prefetch(self, delivery: Delivery) -> None:
        consumer = delivery.consumer
        if consumer.mode == "auto" or consumer.prefetch == 0:
            return
        held = [
            each
            for each in consumer.deliveries
            if not each.over and each.settle is None and not self._may_time_out(each)
        ]
        if len(held) >= consumer.prefetch:
            bodies = ", ".join(each.message.body for each in held)
            raise Violation(f"{delivery.message.body} came to {consumer} beside {bodies}")

    def _after(self, message: Message, consumer: Consumer) -> int:
        """The latest tick before which the broker cannot have made this delivery."""
        ticks = [consumer.asked, message.sent or 0]
        ticks += [each.settle_asked or 0 for each in message.deliveries if each.settle == "nack"]
        if message.lost_by is not None:
            ticks.append(message.lost_by.end_asked or 0)
        beyond = len(consumer.deliveries) - consumer.prefetch
        if consumer.mode != "auto" and consumer.prefetch > 0 and self.rules.ack_timeout == 0:
            ticks += consumer.settles[beyond : beyond + 1] if beyond >= 0 else ()
        return max(ticks)

    def _check_turn(self, delivery: Delivery) -> None:
        """It waited, in reach, while one behind it in the queue was delivered: out of turn."""
        message, queue = delivery.message, delivery.message.home
        available: float = 0
        unseen = delivery.count > 1 + len(message.deliveries)
        if message.returned is Return.FAILED or message.dead or unseen:
            return
        if message.returned is Return.LOST:
            assert message.lost_by is not None
            available = message.lost_by.closed.get(queue, NEVER)
        for other in self.log.get(queue, ()):
            if other.after < available or not message.entered_before(other.message):
                continue
            if other.seen >= delivery.after and other.consumer.connection != delivery.consumer.connection:
                continue
            if not self._unsure(queue, other.after, other.seen):
                raise Violation(f"{message.body} came to {delivery.consumer} after {other.message.body}, out of turn")

    def _unsure(self, queue: str, since: int, until: int) -> bool:
        """Whether some lost consumer's messages may have been on their way back between these ticks."""
        return any(each.may_bounce(queue, since, until) for each in self.history)

    def _check_together(self, delivery: Delivery) -> None:
        """A transaction's messages stand side by side in their queue, so nothing comes between two of them."""
        transaction = delivery.message.transaction
        if transaction is None or not delivery.first:
            return
        between: Delivery | None = None
        for other in reversed(self.log.get(delivery.message.home, ())):
            if other.consumer.connection != delivery.consumer.connection or not other.first:
                continue
            if other.message.transaction is not transaction:
                between = between or other
            elif between is not None and not self._unsure(delivery.message.home, other.after, delivery.seen):
                came = f"{other.message.body}, {between.message.body}, {delivery.message.body}"
                raise Violation(f"{transaction.name} is not in one piece: {came}")
            else:
                return

    def _record(self, delivery: Delivery) -> None:
        message, consumer = delivery.message, delivery.consumer
        consumer.deliveries.append(delivery)
        message.deliveries.append(delivery)
        self.log.setdefault(message.home, []).append(delivery)
        message.seen = message.certain = True
        message.presence = Presence.HERE
        if message.transaction is None:
            self._imply_earlier(message)
        else:
            self._proven(message.transaction)
        if consumer.mode == "auto":
            delivery.over = True
            self._gone(message, f"consumed by {consumer}")
        else:
            message.holder = delivery

    def _imply_earlier(self, message: Message) -> None:
        """A connection's frames take effect in their order, so what it sent before is in its queue, too."""
        for other in self.messages.values():
            mine = other.publisher == message.publisher and other.transaction is None
            if mine and other.sent is not None and other.number < message.number:
                other.certain = True

    def _has_room(self, consumer: Consumer, queue: str) -> bool:
        if not consumer.live or consumer.end_asked is not None or not matches(consumer.pattern, queue):
            return False
        if consumer.mode == "auto" or consumer.prefetch == 0:
            return True
        held = sum(not each.over and not self._is_overdue(each) for each in consumer.deliveries)
        return held < consumer.prefetch

    def _homes(self, message: Message) -> list[str]:
        """The queue it waits in; two, where the model cannot know whether it is a dead letter yet."""
        dead, failing = dead_letter_queue(message.queue), int(message.holder is not None)
        if message.dead or message.failures_min + failing >= message.limit:
            return [dead]
        return [message.queue, dead] if message.failures_max + failing >= message.limit else [message.queue]

    def _is_overdue(self, delivery: Delivery) -> bool:
        timeout = self.rules.ack_timeout
        return timeout > 0 and delivery.settle is None and self._clock() > delivery.seen_at + timeout

    def _is_free(self, message: Message) -> bool:
        return message.holder is None or self._is_overdue(message.holder)


def undelivered(messages: Iterable[Message]) -> str:
    """A line about messages, for failures."""
    return ", ".join(f"{each.body} in {each.home} ({each.returned.value})" for each in messages)
