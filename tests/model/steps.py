"""Random interleavings, made from a seed alone.

A step names what to do and carries three random numbers; the player reads them modulo what there is to choose from when
the step's turn comes. So a seed, or any part of its steps, can be played again, and a failing list of steps can be cut
down by trying each part several times: a broker of several threads need not fail twice alike. test_machine.py plays the
same steps as hypothesis chooses them, which is quicker at cutting down what does fail each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Step(NamedTuple):
    """One thing to do, and the random numbers that say how."""

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
    "quiet": 8,
    "settle": 3,
}
PRELUDE = ("connect", "connect", "subscribe", "send")


def generate(seed: int, length: int, *, timeouts: bool = False) -> list[Step]:
    """The steps of a seed. With `timeouts` some wait for an ack_timeout."""
    chance = random.Random(seed)
    weights = WEIGHTS | ({"timeout": 3} if timeouts else {})
    kinds = list(PRELUDE) + chance.choices(list(weights), list(weights.values()), k=length - len(PRELUDE))
    return [Step(kind, *(chance.randrange(1 << 16) for _ in range(3))) for kind in kinds]


def shrink(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A shorter list that still fails: chunks are left out, halves first, single steps last."""
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
