"""The checks that every delivery must pass, given the bounds of what the broker may have done.

Each raises `Violation` only where the bounds leave no correct explanation. No check changes the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.model.bounds import Bounds
from tests.model.rules import dead_letter_queue
from tests.model.state import NEVER, Consumer, Delivery, Message, Return, Violation


def delivery_count(message: Message, destination: str, headers: Mapping[str, str]) -> int:
    """Returns the delivery's number as its headers state it; the headers must agree with each other."""
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
        raise Violation(f"{message.body}: a first delivery has delivery-count:{text}")
    return number


def is_late_read(bounds: Bounds, consumer: Consumer, message: Message, count: int) -> bool:
    """Whether this is an older delivery, to a consumer that has lost it since, read after a newer one."""
    given_up = consumer.end_requested is not None or bounds.rules.ack_timeout > 0
    newer = any(each.count > count for each in message.deliveries)
    return newer and given_up and not message.dead and consumer.mode != "auto"


def check_queue(message: Message, destination: str, headers: Mapping[str, str]) -> None:
    """The message came from its own queue or, with the headers of a dead letter, from its dead-letter queue."""
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
    if not message.dead and message.failures_max < message.limit:
        most = message.failures_max
        raise Violation(f"{message.body} is a dead letter after at most {most} failures of {message.limit}")


def check_delay(bounds: Bounds, message: Message, now: float) -> None:
    """The redelivery delay of the message has passed."""
    if now < message.available_at - bounds.rules.slack:
        early = message.available_at - now
        raise Violation(f"{message.body} came {early * 1000:.0f} ms before its redelivery was due")


def check_count(bounds: Bounds, delivery: Delivery, headers: Mapping[str, str]) -> None:
    """`delivery-count` fits the deliveries that were read and those that may have gone to lost consumers."""
    message, count = delivery.message, delivery.count
    read, unread = len(message.deliveries), _unread_deliveries(bounds, message)
    if message.dead:
        if "redelivered" not in headers and not read <= count <= read + unread:
            raise Violation(f"dead letter {message.body}: delivery-count {count} after {read} deliveries")
        return
    low = max((each.count for each in message.deliveries), default=0) + 1
    if not low <= count <= 1 + read + unread:
        raise Violation(
            f"{message.body}: delivery-count {count}, but {read} deliveries were read and at most {unread} were not"
        )


def _unread_deliveries(bounds: Bounds, message: Message) -> int:
    """How many deliveries nobody read, at most: those to lost consumers, and those that ended by ack_timeout."""
    since = message.sent or 0
    unread = sum(each.in_transit(message.queue, since, bounds.tick) for each in bounds.history)
    if bounds.rules.ack_timeout > 0:
        unread += int((bounds.clock() - message.sent_at + bounds.rules.slack) / bounds.rules.ack_timeout)
    return unread


def check_prefetch(bounds: Bounds, delivery: Delivery) -> None:
    """The consumer holds fewer messages than its prefetch count."""
    consumer = delivery.consumer
    if consumer.mode == "auto" or consumer.prefetch == 0:
        return
    held = [
        each for each in consumer.deliveries if not each.over and each.settle is None and not bounds.may_time_out(each)
    ]
    if len(held) >= consumer.prefetch:
        bodies = ", ".join(each.message.body for each in held)
        raise Violation(f"{delivery.message.body} came to {consumer} beside {bodies}")


def earliest_tick(bounds: Bounds, message: Message, consumer: Consumer) -> int:
    """Returns the latest tick before which the broker cannot have made this delivery."""
    ticks = [consumer.subscribed, message.sent or 0]
    ticks += [each.settle_requested or 0 for each in message.deliveries if each.settle == "nack"]
    if message.lost_by is not None:
        ticks.append(message.lost_by.end_requested or 0)
    beyond = len(consumer.deliveries) - consumer.prefetch
    if consumer.mode != "auto" and consumer.prefetch > 0 and bounds.rules.ack_timeout == 0:
        ticks += consumer.settles[beyond : beyond + 1] if beyond >= 0 else ()
    return max(ticks)


def check_order(bounds: Bounds, delivery: Delivery) -> None:
    """No message behind this one in the queue was delivered while this one was available."""
    message, queue = delivery.message, delivery.message.home
    available: float = 0
    unread = delivery.count > 1 + len(message.deliveries)
    if message.returned is Return.FAILED or message.dead or unread:
        return
    if message.returned is Return.LOST:
        assert message.lost_by is not None
        available = message.lost_by.closed.get(queue, NEVER)
    for other in bounds.log.get(queue, ()):
        if other.after < available or not message.entered_before(other.message):
            continue
        if other.received >= delivery.after and other.consumer.connection != delivery.consumer.connection:
            continue
        if not bounds.may_be_in_transit(queue, other.after, other.received):
            raise Violation(f"{message.body} came to {delivery.consumer} after {other.message.body}, out of order")


def check_contiguous(bounds: Bounds, delivery: Delivery) -> None:
    """The messages of a transaction are next to each other in their queue, so nothing comes between two of them."""
    transaction = delivery.message.transaction
    if transaction is None or not delivery.first:
        return
    home = delivery.message.home
    between: Delivery | None = None
    for other in reversed(bounds.log.get(home, ())):
        if other.consumer.connection != delivery.consumer.connection or not other.first:
            continue
        if other.message.transaction is not transaction:
            between = between or other
        elif between is not None and not bounds.may_be_in_transit(home, other.after, delivery.received):
            came = f"{other.message.body}, {between.message.body}, {delivery.message.body}"
            raise Violation(f"{transaction.name} is not contiguous: {came}")
        else:
            return
