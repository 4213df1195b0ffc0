"""Clients that fill the storage of messages: names, queues, unacknowledged deliveries, transactions, timers, outboxes.

Each row names what is filled. The longest round trip of a bystander is printed (`pytest -s`), but is no condition.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.hostile import LOGIN, LONG, Attack, run_attack
from tests.support import frames
from tests.support.clients import StartBroker


def unsubscribed_names(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.send(f"/topic/{number}.{at}.{LONG}", "x") for at in range(4000))]


def short_names(number: int) -> Sequence[bytes]:
    return [LOGIN, b"".join(frames.send(f"/topic/{number}.{at}", "x") for at in range(40_000))]


def queues(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.send(f"/queue/{number}.{at}", "x") for at in range(5000))]


def queues_of_long_names(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.send(f"/queue/{number}.{at}.{LONG}", "x") for at in range(2000))]


def a_long_queue(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.send("/queue/long", "x" * 10_000, receipt="r") for _ in range(8000))]


def unacknowledged(number: int) -> Sequence[bytes]:
    taken = frames.subscribe("/queue/taken", "0", ack="client-individual", prefetch_count=0)
    return [LOGIN, taken, *(frames.send("/queue/taken", "x" * 100) for _ in range(20_000))]


def timed_out(number: int) -> Sequence[bytes]:
    taken = frames.subscribe(f"/queue/late.{number}", "0", ack="client-individual", prefetch_count=0)
    sent = frames.send(f"/queue/late.{number}", "x" * 10)
    return [LOGIN, taken, *(sent for _ in range(5000))]


def falling_expiries(number: int) -> Sequence[bytes]:
    consumer = frames.subscribe("/queue/falling", "0")
    falling = [frames.send("/queue/falling", "x", expiration=100_000_000 - 1000 * at) for at in range(30_000)]
    return [LOGIN, consumer, *falling]


def retained(number: int) -> Sequence[bytes]:
    kept = [frames.send(f"/topic/{at}.{LONG}", "x", retain="set", expiration=1500) for at in range(3000)]
    return [LOGIN, *kept]


def stale(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.send(f"/topic/{number}.{at}", "x" * 3000) for at in range(5000))]


def temporary_names(number: int) -> Sequence[bytes]:
    sent = [frames.send("/topic/a", "x", reply_to=f"/temp-queue/{at}.{LONG}") for at in range(9000)]
    return [LOGIN, *sent]


def open_transactions(number: int) -> Sequence[bytes]:
    begun = [frames.begin(f"{at}.{LONG}") for at in range(100)]
    sent = [frames.send("/queue/t", "x" * 30_000, transaction=f"{at % 100}.{LONG}") for at in range(500)]
    return [LOGIN, *begun, *sent]


def commits_to_many_queues(number: int) -> Sequence[bytes]:
    pieces = [LOGIN]
    for at in range(5):
        sent = (frames.send(f"/queue/{number}.{to}", "x", transaction="t") for to in range(3000))
        pieces += [frames.begin("t"), *sent, frames.commit("t", receipt=f"{at}")]
    return pieces


def to_many_subscribers(number: int) -> Sequence[bytes]:
    if number:
        return [LOGIN, frames.subscribe("/topic/shared", "0")]
    return [LOGIN, *(frames.send("/topic/shared", "x" * 100_000) for _ in range(300))]


def crossing(number: int) -> Sequence[bytes]:
    sent = frames.send(f"/topic/cross.{number + 1}", "x" * 1000) * 10
    return [LOGIN, frames.subscribe(f"/topic/cross.{number}", "0"), *(sent for _ in range(1000))]


ATTACKS = [
    Attack("resolved names of maximum length", unsubscribed_names, connections=4),
    Attack("resolved names", short_names, connections=4),
    Attack("queues", queues, connections=4),
    Attack("queues with long names", queues_of_long_names, connections=2, settings={"publish_timeout": "2s"}),
    Attack("one long queue", a_long_queue, settings={"publish_timeout": "2s"}),
    Attack("unacknowledged deliveries", unacknowledged),
    Attack(
        "requeued deliveries",
        timed_out,
        connections=3,
        hold_s=1,
        settings={"ack_timeout": "100", "max_deliveries": 100},
    ),
    Attack("expiry timers", falling_expiries, reads=True),
    Attack("retained messages", retained),
    Attack("stale messages", stale, connections=3, settings={"TTL": "1500"}),
    Attack("temporary destinations", temporary_names, connections=3, settings={"publish_timeout": "2s"}),
    Attack("open transactions", open_transactions, connections=5, settings={"publish_timeout": "2s"}),
    Attack("queues of a COMMIT", commits_to_many_queues, connections=2),
    Attack("outboxes of a topic", to_many_subscribers, connections=60),
    Attack("mailboxes between threads", crossing, connections=8),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_hostile_publishers_exceed_no_bound(start_broker: StartBroker, attack: Attack) -> None:
    run_attack(start_broker, attack)
