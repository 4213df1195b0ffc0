"""The random runs of tests/model, thousands of them, with new seeds (they are printed)."""

from __future__ import annotations

import random

from tests.model.rules import Rules
from tests.model.runs import TIMED, UNTIMED, run_seed
from tests.support.clients import StartBroker

RUNS = 3000
TIMED_RUNS = 500
"""Runs that wait for timeouts now and then."""


def run_all(find_broker: StartBroker, rules: Rules, runs: int) -> None:
    first = random.SystemRandom().randrange(1 << 32)
    print(f"seeds {first} to {first + runs - 1}")
    for seed in range(first, first + runs):
        run_seed(find_broker, rules, seed)


def test_thousands_of_random_interleavings_are_allowed_by_the_model(shared_broker: StartBroker) -> None:
    run_all(shared_broker, UNTIMED, RUNS)


def test_hundreds_of_random_interleavings_with_timeouts_are_allowed_by_the_model(shared_broker: StartBroker) -> None:
    run_all(shared_broker, TIMED, TIMED_RUNS)
