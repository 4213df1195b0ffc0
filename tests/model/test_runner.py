"""The whole harness against a small broker: once correct, and once with each fault."""

from __future__ import annotations

import pytest

from tests.model.links import Fence
from tests.model.rules import Rules
from tests.model.runner import Runner
from tests.model.state import Violation
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
def test_a_correct_broker_passes(ack_timeout: float) -> None:
    with TinyBroker(Rules(2, 0.01, ack_timeout)) as broker:
        for seed in range(6):
            run_seed(broker, seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_broker_fails(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.model.exchange.DELIVERY_TIMEOUT", 0.5)
    with TinyBroker(RULES, fault) as broker:
        for seed in range(30):
            try:
                run_seed(broker, seed)
            except Violation:
                return
    pytest.fail(f"a broker with this fault passed 30 runs: {FAULTS[fault]}")


def test_a_seed_always_generates_the_same_steps() -> None:
    assert generate(7, 50) == generate(7, 50) != generate(8, 50)


def test_a_failing_list_of_steps_is_shortened() -> None:
    steps = [Step("send", number, 0, 0) for number in range(40)]
    wanted = {3, 29}
    found = shrink(steps, lambda shorter: wanted <= {step.a for step in shorter})
    assert [step.a for step in found] == [3, 29]
