"""Random interleavings against the broker: the reference model must allow every delivery.

These are two hundred runs, half of them with one shard and half with four; tests/soak has thousands. The seeds are
fixed, so a run can be repeated, but the threads may interleave in another way.
"""

from __future__ import annotations

import pytest

from tests.model.runs import TIMED, UNTIMED, run_seed
from tests.support.clients import StartBroker


@pytest.mark.parametrize("tens", range(8))
def test_random_interleavings_are_allowed_by_the_model(shared_broker: StartBroker, tens: int) -> None:
    for seed in range(tens * 10, tens * 10 + 10):
        run_seed(shared_broker, UNTIMED, seed)


@pytest.mark.parametrize("fives", range(4))
def test_random_interleavings_with_timeouts_are_allowed_by_the_model(shared_broker: StartBroker, fives: int) -> None:
    for seed in range(1000 + fives * 5, 1000 + fives * 5 + 5):
        run_seed(shared_broker, TIMED, seed)
