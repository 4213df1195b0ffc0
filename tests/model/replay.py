"""Runs a seed again: `python -m tests.model.replay SEED --writers 4 [--timeouts] [--shrink] [--times 20]`."""

from __future__ import annotations

import argparse
import itertools
import sys

from tests.model.links import Fence
from tests.model.runner import Runner
from tests.model.runs import LENGTH, TIMED, UNTIMED, settings
from tests.model.state import Violation
from tests.model.steps import Step, generate, shrink
from tests.support.process import BrokerProcess

_runs = itertools.count()


def main() -> int:
    """Exit status 1 if the seed fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--timeouts", action="store_true")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--times", type=int, default=1, help="how often each list of steps is tried")
    options = parser.parse_args()
    rules = TIMED if options.timeouts else UNTIMED
    with BrokerProcess(writers=options.writers, **settings(rules)) as broker:
        fence = Fence(broker.port, options.writers)

        def failure(steps: list[Step]) -> Violation | None:
            for _ in range(options.times):
                try:
                    Runner(broker.port, f"replay{next(_runs)}", rules, fence).run(steps, options.seed)
                except Violation as violation:
                    return violation
            return None

        steps = generate(options.seed, LENGTH, timeouts=options.timeouts)
        if failure(steps) is None:
            print("passed")
            return 0
        if options.shrink:
            steps = shrink(steps, lambda shorter: failure(shorter) is not None)
        print(failure(steps) or "the last replay passed")
        print(*steps, sep="\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
