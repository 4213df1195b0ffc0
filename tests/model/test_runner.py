"""The whole harness, played against a broker that is right and against one that is wrong in each way."""

from __future__ import annotations

import pytest

from tests.model.runner import Fence, Runner
from tests.model.state import Rules, Violation
from tests.model.steps import Step, generate, shrink
from tests.model.tiny_broker import FAULTS, TinyBroker

RULES = Rules(max_deliveries=2, redelivery_delay=0.01)


def run_seed(broker: TinyBroker, seed: int, length: int = 100) -> None:
    fence = Fence(broker.port, 1)
    runner = Runner(broker.port, f"s{seed}", broker.rules, fence, websockets=False)
    try:
        runner.run(generate(seed, length, timeouts=broker.rules.ack_timeout > 0), seed)
    finally:
        fence.close()


@pytest.mark.parametrize("ack_timeout", [0.0, 0.1], ids=["untimed", "timed"])
def test_a_right_broker_is_not_flagged(ack_timeout: float) -> None:
    with TinyBroker(Rules(2, 0.01, ack_timeout)) as broker:
        for seed in range(6):
            run_seed(broker, seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_broker_is_flagged(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.model.runner.PATIENCE", 0.5)
    with TinyBroker(RULES, fault) as broker:
        for seed in range(30):
            try:
                run_seed(broker, seed)
            except Violation:
                return
    pytest.fail(f"a broker of which {FAULTS[fault]} passed 30 runs")


def test_a_seed_makes_the_same_steps_each_time() -> None:
    assert generate(7, 50) == generate(7, 50) != generate(8, 50)


def test_failing_steps_are_cut_down() -> None:
    steps = [Step("send", number, 0, 0) for number in range(40)]
    wanted = {3, 29}
    found = shrink(steps, lambda shorter: wanted <= {step.a for step in shorter})
    assert [step.a for step in found] == [3, 29]
