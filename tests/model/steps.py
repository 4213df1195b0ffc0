"""Random interleavings, generated from a seed alone.

A step names an action and carries three random numbers. When the step is executed, the runner takes these numbers
modulo the number of choices there are. So a seed, or any part of its steps, can be run again, and a failing list of
steps can be shortened by trying each part several times: a broker with several threads does not always fail in the
same way. test_state_machine.py runs the same steps as hypothesis chooses them; that shortens a failure which happens
every time faster.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Step(NamedTuple):
    """One action and the random numbers that select its details."""

    kind: str
    a: int
    b: int
    c: int


WEIGHTS = {
    "connect": 5,
    "subscribe": 11,
    "send": 20,
    "ack": 18,
    "nack": 18,
    "begin": 7,
    "tx_send": 10,
    "tx_ack": 8,
    "tx_nack": 5,
    "commit": 11,
    "abort": 3,
    "unsubscribe": 4,
    "disconnect": 2,
    "half_close": 1,
    "reset": 3,
    "commit_and_reset": 2,
    "late_ack": 2,
    "bad_ack": 3,
    "await": 8,
    "quiesce": 3,
}
PRELUDE = ("connect", "connect", "subscribe", "send")


def generate(seed: int, length: int, *, timeouts: bool = False) -> list[Step]:
    """Returns the steps of a seed. With `timeouts`, some of them wait for an ack_timeout."""
    chance = random.Random(seed)
    weights = WEIGHTS | ({"timeout": 3} if timeouts else {})
    kinds = list(PRELUDE) + chance.choices(list(weights), list(weights.values()), k=length - len(PRELUDE))
    return [Step(kind, *(chance.randrange(1 << 16) for _ in range(3))) for kind in kinds]


def shrink(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Returns a shorter list that still fails. Removes chunks: halves first, single steps last."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            shorter = steps[:at] + steps[at + size :]
            if fails(shorter):
                steps = shorter
            else:
                at += size
        size //= 2
    return steps
