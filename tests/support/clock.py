"""Waiting in the broker's own time, without sleeping: the broker shows by a timer of its own that the time is over."""

from __future__ import annotations

from tests.support import frames
from tests.support.queues import fresh, unsubscribe_and_wait
from tests.support.wire import Wire


def wait_ms(wire: Wire, ms: int) -> None:
    """Returns when at least `ms` have passed in the broker: a message with this time to live has expired.

    Nothing else may come to `wire` meanwhile.
    """
    name = fresh("clock")
    wire.subscribe(f"/queue/dlq/{name}", name)
    wire.send(frames.send(f"/queue/{name}", name, ttl=ms))
    wire.expect_message(name, subscription=name, dead_letter_reason="expired")
    assert unsubscribe_and_wait(wire, name) == []
