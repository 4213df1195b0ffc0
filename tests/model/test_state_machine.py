"""The model test as a hypothesis state machine, which shortens a failing run to the steps that matter.

The steps are those of steps.py; hypothesis chooses the next one. Hypothesis expects that a run can be repeated
exactly, but a broker with several threads does not guarantee that. So the choice of steps never depends on the
broker's answers, and a failure that happens once and not again is still reported.

One rule makes all kinds of steps. With a rule for each kind, or with preconditions, hypothesis leaves some kinds out of
each run; then few messages failed often enough to become dead letters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.model import runs
from tests.model.links import Fence
from tests.model.runner import Runner
from tests.model.state import Violation
from tests.model.steps import PRELUDE, WEIGHTS, Step
from tests.model.tiny_broker import FAULTS, TinyBroker
from tests.support.clients import StartBroker

RULES = runs.UNTIMED
NUMBER = st.integers(0, (1 << 16) - 1)
KIND = st.sampled_from([kind for kind, weight in WEIGHTS.items() for _ in range(weight)])
SETTINGS = settings(
    max_examples=100,
    stateful_step_count=60,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
UNSHORTENED = settings(SETTINGS, phases=[Phase.generate])

_names = itertools.count()


class Interleaving(RuleBasedStateMachine):
    """One run. Failures are also appended to `failures`, because hypothesis may not be able to reproduce them."""

    def __init__(self, runner: Runner, failures: list[Violation]) -> None:
        super().__init__()
        self._runner = runner
        self._failures = failures
        self._steps: list[Step] = []
        self._ending = 0
        self._failed = False

    @initialize(numbers=st.lists(NUMBER, min_size=12, max_size=12), ending=NUMBER)
    def begin(self, numbers: list[int], ending: int) -> None:
        """Starts with clients that can act; `ending` is the seed of how they leave."""
        self._ending = ending
        for at, kind in enumerate(PRELUDE):
            self._do(kind, *numbers[3 * at : 3 * at + 3])

    @rule(kind=KIND, a=NUMBER, b=NUMBER, c=NUMBER)
    def step(self, kind: str, a: int, b: int, c: int) -> None:
        """Executes the next step."""
        self._do(kind, a, b, c)

    def teardown(self) -> None:
        """Finishes the run, unless it has failed already."""
        try:
            if not self._failed:
                self._try(lambda: self._runner.finish(self._ending))
        finally:
            self._runner.discard()

    def _do(self, kind: str, a: int, b: int, c: int) -> None:
        step = Step(kind, a, b, c)
        self._steps.append(step)
        self._try(lambda: self._runner.step(step))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Violation as violation:
            self._failed = True
            steps = [tuple(step) for step in self._steps]
            again = f"Runner.run([Step(*each) for each in {steps}], seed={self._ending})"
            note(again)
            self._failures.append(Violation(f"{violation}\n{again}"))
            raise


def explore(start: Callable[[], Runner], failures: list[Violation], *, shorten: bool = True) -> None:
    """Executes as many runs as the settings say, and shortens one that fails.

    Raises the `Violation` of the shortened run, or the first one if the failure did not happen again.
    """

    class Run(Interleaving):
        def __init__(self) -> None:
            super().__init__(start(), failures)

    try:
        run_state_machine_as_test(Run, settings=SETTINGS if shorten else UNSHORTENED)
    except Flaky as flaky:
        if not failures:
            raise
        raise failures[0] from flaky
    assert not failures, "hypothesis has not reported a failure"


@pytest.mark.timeout(600)  # a failing run is repeated until it is short
def test_interleavings_chosen_by_hypothesis_are_allowed_by_the_model(shared_broker: StartBroker) -> None:
    broker = shared_broker(**runs.settings(RULES))
    fence = Fence(broker.port, int(str(broker.settings["writers"])))
    try:
        explore(lambda: Runner(broker.port, f"machine{next(_names)}", RULES, fence), [])
    finally:
        fence.close()


# -- faulty brokers ------------------------------------------------------------------------------------------------


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with one thread on the same machine answers within a short time."""
    monkeypatch.setattr("tests.model.exchange.DELIVERY_TIMEOUT", 0.5)


def explore_tiny(broker: TinyBroker, failures: list[Violation], start: Callable[[], None] = lambda: None) -> None:
    """As `explore`, but does not shorten a run that fails; `start` is called before each run."""
    fence = Fence(broker.port, 1)

    def runner() -> Runner:
        start()
        return Runner(broker.port, f"tiny{next(_names)}", broker.rules, fence, websockets=False)

    try:
        explore(runner, failures, shorten=False)
    finally:
        fence.close()


def test_a_correct_broker_passes() -> None:
    with TinyBroker(RULES) as broker:
        explore_tiny(broker, [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_broker_fails(fault: str, short_timeout: None) -> None:
    with TinyBroker(RULES, fault) as broker, pytest.raises(Violation):
        explore_tiny(broker, [])


def test_a_failure_that_does_not_happen_again_is_reported() -> None:
    failures: list[Violation] = []

    with TinyBroker(RULES, "reorders") as broker:

        def repair() -> None:
            if failures:
                broker.fault = ""

        with pytest.raises(Violation, match="out of order") as raised:
            explore_tiny(broker, failures, repair)
    assert failures == [raised.value]
    assert isinstance(raised.value.__cause__, Flaky)
