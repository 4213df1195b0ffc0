"""Random interleavings against the broker: what it delivers must be something the reference model allows.

Two hundred runs, half of them with one shard and half with four; tests/soak has thousands. The seeds are always the
same here, so a run can be played again; how the threads interleave is not.
"""

from __future__ import annotations

import pytest

from tests.model.runs import TIMED, UNTIMED, run_seed
from tests.support.clients import StartBroker


@pytest.mark.parametrize("tens", range(8))
def test_random_interleavings(shared_broker: StartBroker, tens: int) -> None:
    for seed in range(tens * 10, tens * 10 + 10):
        run_seed(shared_broker, UNTIMED, seed)


@pytest.mark.parametrize("fives", range(4))
def test_random_interleavings_with_timeouts(shared_broker: StartBroker, fives: int) -> None:
    for seed in range(1000 + fives * 5, 1000 + fives * 5 + 5):
        run_seed(shared_broker, TIMED, seed)
