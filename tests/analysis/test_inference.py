"""The statistics without Spark: false alarms are rare, real differences are found, known answers are reproduced."""

from __future__ import annotations

import numpy as np
import pytest

from stompica.analysis import changes, comparisons, curves, inference
from stompica.analysis.comparisons import METRICS
from stompica.recording import RunInfo
from tests.analysis import synthetic


@pytest.mark.parametrize(
    ("p", "freedom", "expected"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.995, 4, 4.60409), (0.999, 9, 4.29681), (0.9995, 29, 3.6594)],
)
def test_student_quantiles_agree_with_published_tables(p: float, freedom: int, expected: float) -> None:
    assert inference.student_quantile(p, freedom) == pytest.approx(expected, rel=1e-4)


def campaign(number: int, rng: np.random.Generator, pairs: int, **factors: float) -> tuple[list[RunInfo], dict]:  # type: ignore[type-arg]
    """A campaign of two runs: 4 % noise, and a machine whose speed varies by 20 % from turn to turn."""
    base = synthetic.info(number, campaign=f"c{number}", label="A", state="complete")
    other = synthetic.info(number, campaign=f"c{number}", label="B", state="complete", run_id=base.run_id + 1)
    slowdowns = {metric.name: np.exp(rng.normal(0, 0.2, pairs)) for metric in METRICS}
    values = {}
    for run in (base, other):
        noisy = {name: slowdown * np.exp(rng.normal(0, 0.04, pairs)) for name, slowdown in slowdowns.items()}
        scaled = {name: value * (factors.get(name, 1.0) if run is other else 1.0) for name, value in noisy.items()}
        values[run.run_id] = {name: dict(enumerate(value.tolist())) for name, value in scaled.items()}
    return [base, other], values


def verdicts(number: int, rng: np.random.Generator, pairs: int, **factors: float) -> dict[str, str]:
    """The verdicts on a campaign of `campaign`."""
    runs, values = campaign(number, rng, pairs, **factors)
    names = {run.run_id: run.label for run in runs}
    return {row["metric"]: row["verdict"] for row in comparisons.compare(runs, names, values)}


@pytest.mark.parametrize("pairs", [5, 10, 30])
def test_at_most_5_of_100_comparisons_of_equals_raise_an_alarm(pairs: int) -> None:
    rng = np.random.default_rng(100 + pairs)
    found = [set(verdicts(number, rng, pairs).values()) for number in range(100)]
    assert sum(verdict != {"no difference shown"} for verdict in found) <= 5


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_difference_of_15_percent_is_found_in_20_of_20(metric: comparisons.Metric) -> None:
    rng = np.random.default_rng(15)
    for factor, better in ((1.15, metric.more_is_better), (1 / 1.15, not metric.more_is_better)):
        found = [verdicts(number, rng, 12, **{metric.name: factor})[metric.name] for number in range(20)]
        assert found == ["better" if better else "worse"] * 20


def test_a_certain_but_tiny_difference_is_not_reported() -> None:
    runs, values = campaign(1, np.random.default_rng(1), 10)
    base, other = (values[run.run_id] for run in runs)
    other["p50_us"] = {number: value * 1.01 for number, value in base["p50_us"].items()}
    names = {run.run_id: run.label for run in runs}
    (row,) = [row for row in comparisons.compare(runs, names, values) if row["metric"] == "p50_us"]
    assert row["ratio_low"] == pytest.approx(1.01) and row["verdict"] == "no difference shown"


def test_four_pairs_are_too_few() -> None:
    assert set(verdicts(1, np.random.default_rng(1), 4, p50_us=3.0).values()) == {"too few pairs"}


def test_a_failed_run_is_not_compared() -> None:
    runs, values = campaign(1, np.random.default_rng(1), 10)
    runs[1] = synthetic.info(1, campaign="c1", label="B", run_id=runs[1].run_id, state="failed", fault="lost 1")
    (row,) = comparisons.compare(runs, {run.run_id: run.label for run in runs}, values)
    assert row["verdict"] == "not compared: a run is failed"


def test_a_shift_against_an_earlier_campaign_is_suspect_and_not_worse() -> None:
    rng = np.random.default_rng(2)
    runs, values = [], {}
    for number, cpu in ((1, 1.0), (2, 2.0)):
        run = synthetic.info(number, campaign=f"c{number}", state="complete")
        cost = cpu * np.exp(rng.normal(0, 0.04, 10))
        runs.append(run)
        values[run.run_id] = {"cpu_us_per_delivery": dict(enumerate(cost.tolist()))}
    (row,) = comparisons.compare(runs, {run.run_id: "x" for run in runs}, values)
    assert (row["kind"], row["verdict"]) == ("earlier", "suspect")


def test_the_same_data_give_the_same_interval() -> None:
    rng = np.random.default_rng(5)
    base, other = rng.lognormal(size=10), rng.lognormal(size=10)
    first = inference.paired(base, other, 0.002)
    inference._weights.cache_clear()
    assert inference.paired(base, other, 0.002) == first


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_at_most_5_of_100_stable_series_have_a_change_point(correlation: float) -> None:
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(100):
        noise = rng.normal(0, 0.1, 300)
        for second in range(1, 300):
            noise[second] += correlation * noise[second - 1]
        alarms += bool(changes.find(np.exp(noise), 0.01))
    assert alarms <= 5


def test_all_of_50_planted_change_points_are_located() -> None:
    rng = np.random.default_rng(8)
    for _ in range(50):
        values = 1e6 * np.exp(rng.normal(0, 0.05, 200))
        at = int(rng.integers(30, 170))
        values[at:] *= 0.85
        (change,) = changes.find(values, 0.001)
        assert abs(change.index - at) <= 5


@pytest.mark.parametrize("values", [[], [1.0] * 5, [3.0] * 100], ids=["empty", "short", "constant"])
def test_empty_short_and_constant_series_have_no_change_points(values: list[float]) -> None:
    assert changes.find(np.array(values), 0.01) == []


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        ("line", [100, 1000, 60_000], [0.04 + 2e-4 * x for x in (100, 1000, 60_000)]),
        ("shared", [1, 10, 75, 1000], [0.03 + 2 / x for x in (1, 10, 75, 1000)]),
        ("power", [1, 2, 4, 8], [0.1 * x**0.4 for x in (1, 2, 4, 8)]),
    ],
)
def test_a_curve_is_recognised(model: str, x: list[float], y: list[float]) -> None:
    curve = curves.fit(x, y)
    assert curve is not None and curve.model == model and curve.error < 1e-6


def test_two_points_have_no_curve() -> None:
    assert curves.fit([1, 2, 2], [1, 2, 3]) is None
