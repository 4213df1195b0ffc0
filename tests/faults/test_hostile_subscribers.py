"""Clients that fill the storage of subscriptions: tables, names, patterns, durable ones, DIAG intervals.

Each row names what is filled. The longest round trip of a bystander is printed (`pytest -s`), but is no condition.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.faults.hostile import LOGIN, LONG, Attack, run_attack
from tests.support import frames
from tests.support.clients import StartBroker


def names(count: int, prefix: str, *, size: int = 200) -> list[str]:
    """Returns `count` different names of about `size` octets."""
    tail = LONG[: max(0, size - len(prefix) - 8)]
    return [f"{prefix}{number:06}{tail}" for number in range(count)]


def subscribers(number: int) -> Sequence[bytes]:
    own = names(1000, f"/topic/{number}.")
    return [LOGIN, *(frames.subscribe(name, str(at), receipt="r") for at, name in enumerate(own))]


def long_names(number: int) -> Sequence[bytes]:
    own = names(3000, f"/topic/{number}.", size=8000)
    return [LOGIN, *(frames.subscribe(name, str(at)) for at, name in enumerate(own))]


def long_ids(number: int) -> Sequence[bytes]:
    return [LOGIN, *(frames.subscribe("/topic/same", f"{at}.{LONG}") for at in range(3000))]


def patterns(number: int) -> Sequence[bytes]:
    own = names(2000, f"/topic/{number}.", size=400)
    subscribed = [frames.subscribe(f"{name}/*", str(at)) for at, name in enumerate(own)]
    return [LOGIN, *subscribed, *(frames.send(f"/topic/{at}", "x") for at in range(2000))]


def changing_patterns(number: int) -> Sequence[bytes]:
    visit = b"".join(
        frames.subscribe(f"/topic/{number}.{at}.*", "a")
        + frames.unsubscribe("a", receipt="r")
        + frames.send(f"/topic/x{at}", "x")
        for at in range(3000)
    )
    return [LOGIN, visit]


def own_queues(number: int) -> Sequence[bytes]:
    subscribed = [frames.subscribe("/topic/acked", str(at), ack="client") for at in range(500)]
    return [LOGIN, *subscribed, *(frames.send("/topic/acked", "x" * 2000) for _ in range(200))]


def own_queues_without_credit(number: int) -> Sequence[bytes]:
    subscribed = (frames.subscribe("/topic/u", str(at), ack="client", prefetch_count=1) for at in range(4000))
    return [LOGIN, b"".join(subscribed), b"".join(frames.send("/topic/u") for _ in range(90))]


def names_beside_patterns(number: int) -> Sequence[bytes]:
    choices = itertools.islice(itertools.product("a*", repeat=13), 8000)
    subscribed = (frames.subscribe(f"/topic/{'/'.join(choice)}/b", str(at)) for at, choice in enumerate(choices))
    return [LOGIN, b"".join(subscribed), *(frames.send(f"/topic{'/a' * 13}/c{at}") for at in range(3000))]


def own_ids(number: int) -> Sequence[bytes]:
    subscribed = [frames.subscribe("/topic/wide", str(at)) for at in range(2000)]
    return [LOGIN, *subscribed, *(frames.send_counted("/topic/wide", b"x" * 1_000_000) for _ in range(2))]


def consumers_of_patterns(number: int) -> Sequence[bytes]:
    queues = b"".join(frames.send(f"/queue/{at}", "x") for at in range(2000))
    return [LOGIN, queues, *(frames.subscribe("/queue/>", str(at), ack="client") for at in range(300))]


def some_ids(number: int) -> Sequence[str]:
    return [f"{number}.{at}" for at in range(200)]


def many_ids(number: int) -> Sequence[str]:
    return [f"{number}.{at}" for at in range(4000)]


def durables_that_end_at_once(number: int) -> Sequence[bytes]:
    visits = [
        frames.subscribe("/topic/kept", at, durable="true", receipt="s")
        + frames.unsubscribe(at, durable="true", receipt="u")
        for at in some_ids(number)
    ]
    return [LOGIN, *visits]


def durables(number: int) -> Sequence[bytes]:
    ids = many_ids(number)
    subscribed = b"".join(frames.subscribe("/topic/kept", at, durable="true") for at in ids)
    ended = b"".join(frames.unsubscribe(at, durable="true") for at in ids)
    return [LOGIN, subscribed, b"".join(frames.send("/topic/kept", "x") for _ in range(30)), ended]


def watches(number: int) -> Sequence[bytes]:
    subscribed = [frames.subscribe(f"DIAG/{at}", f"{at}", query="shards", interval=100) for at in range(300)]
    return [LOGIN, *subscribed, *(frames.unsubscribe(f"{at}") for at in range(150))]


def retained_for_many(number: int) -> Sequence[bytes]:
    kept = [frames.send(f"/topic/r{at}", "x" * 3000, retain="set", expiration=4000) for at in range(2000)]
    return [LOGIN, *kept, *(frames.subscribe("/topic/*", str(at)) for at in range(100))]


ATTACKS = [
    Attack("subscriptions", subscribers, connections=10, rounds=2),
    Attack("subscriptions with long names", long_names, connections=4),
    Attack("subscriptions with long ids", long_ids, connections=4),
    Attack("patterns", patterns, connections=4, reads=True),
    Attack("patterns that come and go", changing_patterns, connections=4, reads=True),
    Attack("private queues of subscriptions with acknowledgements", own_queues, connections=2),
    Attack("private queues without credit", own_queues_without_credit),
    Attack("names beside many patterns", names_beside_patterns, hold_s=1),
    Attack("groups of one topic", own_ids),
    Attack("consumers of queue patterns", consumers_of_patterns),
    Attack(
        "durable subscriptions that end immediately",
        durables_that_end_at_once,
        connections=5,
        reads=True,
        durables=some_ids,
    ),
    Attack("durable subscriptions to one topic", durables, reads=True, hold_s=1, durables=many_ids),
    Attack("DIAG intervals", watches, connections=2),
    Attack("replays of retained messages", retained_for_many),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_hostile_subscribers_exceed_no_bound(start_broker: StartBroker, attack: Attack) -> None:
    run_attack(start_broker, attack)
