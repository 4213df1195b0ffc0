"""Settings and one run, for the short and the long model test."""

from __future__ import annotations

import itertools
from typing import Any

from tests.model.links import Fence
from tests.model.rules import Rules
from tests.model.runner import Runner
from tests.model.state import Violation
from tests.model.steps import generate
from tests.support.clients import StartBroker

LENGTH = 100
"""Steps of one run."""
UNTIMED = Rules(max_deliveries=2, redelivery_delay=0.01)
TIMED = Rules(max_deliveries=3, redelivery_delay=0.01, ack_timeout=0.12)

_runs = itertools.count()


def settings(rules: Rules) -> dict[str, Any]:
    """Returns the broker's settings for these rules."""
    return {
        "max_deliveries": str(rules.max_deliveries),
        "redelivery_delay": f"{rules.redelivery_delay * 1000:.0f}ms",
        "ack_timeout": f"{rules.ack_timeout * 1000:.0f}ms",
    }


def run_seed(find_broker: StartBroker, rules: Rules, seed: int) -> None:
    """Executes one run with its own queues on a shared broker. A failure names the seed."""
    broker = find_broker(**settings(rules))
    writers = int(str(broker.settings["writers"]))
    fence = Fence(broker.port, writers)
    runner = Runner(broker.port, f"run{next(_runs)}-{seed}", rules, fence)
    try:
        runner.run(generate(seed, LENGTH, timeouts=rules.ack_timeout > 0), seed)
    except Violation as violation:
        timed = " --timeouts" if rules.ack_timeout else ""
        again = f"python -m tests.model.replay {seed} --writers {writers}{timed}"
        raise Violation(f"seed {seed} (again: {again}): {violation}\n{broker.log_text()[-2000:]}") from None
    finally:
        fence.close()
