"""Pairs of runs to compare, and the results.

Runs of one campaign with equal workloads took turns: repetition n of one is paired with repetition n of the other, so
that drift of the machine cancels out. Runs of different campaigns were measured at different times; their ratio
includes the drift, so only large shifts are reported, and only as suspect, never as worse.

The probability of any false difference in a campaign is at most `ALPHA`, which is divided equally among all comparisons
of the campaign.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stompica.analysis import inference
from stompica.analysis.inference import Ratio
from stompica.analysis.tables import Row
from stompica.recording.run import RunInfo

ALPHA = 0.01
"""Probability of any false alarm in a campaign."""


@dataclass(frozen=True)
class Metric:
    """A measured value of a repetition."""

    name: str
    more_is_better: bool
    drift: float
    """Largest shift between campaigns that the machine alone may cause, as a share."""


METRICS = (
    Metric("deliveries_per_s", True, 0.30),
    Metric("cpu_us_per_delivery", False, 0.10),
    Metric("p50_us", False, 0.30),
    Metric("p99_us", False, 0.30),
    Metric("peak_rss_bytes", False, 0.10),
)

DISPLAY_NAMES = {
    "deliveries_per_s": "deliveries per second",
    "cpu_us_per_delivery": "CPU per delivery",
    "p50_us": "median latency",
    "p99_us": "99th percentile of latency",
    "peak_rss_bytes": "peak memory",
}
"""Display names of the metrics."""

EFFECT_MIN = 0.02
"""Smaller differences, as a share, are not reported, however certain they are."""

Values = Mapping[int, Mapping[str, Mapping[int, float]]]
"""Run, metric, repetition: value."""


@dataclass(frozen=True)
class Pair:
    """Two runs to compare."""

    kind: str
    base: RunInfo
    other: RunInfo


def compare(runs: Iterable[RunInfo], names: Mapping[int, str], values: Values) -> list[Row]:
    """All possible comparisons, one row for each pair and metric."""
    known = sorted(runs, key=lambda run: (run.started_at_us, run.run_id))
    pairs = [*_within_campaigns(known), *_with_earlier(known)]
    rows: list[Row] = []
    families: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        families.setdefault(("earlier" if pair.kind == "earlier" else "turns", pair.other.campaign), []).append(pair)
    for family in families.values():
        tests = [(pair, metric) for pair in family for metric in METRICS if _measured(pair, metric, values)]
        alpha = ALPHA / max(len(tests), 1)
        rows += [_row(pair, metric, names, values, alpha) for pair, metric in tests]
        rows += [_not_compared(pair, names) for pair in family if _fault(pair)]
    return rows


def _within_campaigns(runs: list[RunInfo]) -> Iterable[Pair]:
    for members in _groups(runs, lambda run: (run.campaign, _case(run)) if run.campaign else None):
        ours = [run for run in members if run.target.name == "stompica"]
        base = next((run for run in members if run.baseline), (ours or members)[0])
        for other in members:
            if other is not base:
                yield Pair("variant" if other.target.name == base.target.name else "peer", base, other)


def _with_earlier(runs: list[RunInfo]) -> Iterable[Pair]:
    """Each variant's last run against the previous one, if they are from different campaigns."""

    def variant(run: RunInfo) -> str | None:
        what = (run.target.name, dict(run.settings), run.writers, run.label, dataclasses.asdict(run.machine))
        return f"{_case(run)} {json.dumps(what, sort_keys=True)}" if run.kind == "bench" else None

    for members in _groups(runs, variant):
        if len(members) > 1 and members[-2].campaign != members[-1].campaign:
            yield Pair("earlier", members[-2], members[-1])


def _groups(runs: Iterable[RunInfo], key: Callable[[RunInfo], object]) -> list[list[RunInfo]]:
    groups: dict[object, list[RunInfo]] = {}
    for run in runs:
        found = key(run)
        if found is not None:
            groups.setdefault(found, []).append(run)
    return [members for members in groups.values() if len(members) > 1]


def _case(run: RunInfo) -> str:
    return json.dumps(dataclasses.asdict(run.workload), sort_keys=True)


def _fault(pair: Pair) -> str:
    return next((f"{run.state}" for run in (pair.base, pair.other) if run.state != "complete"), "")


def _measured(pair: Pair, metric: Metric, values: Values) -> bool:
    return not _fault(pair) and all(values.get(run.run_id, {}).get(metric.name) for run in (pair.base, pair.other))


def _row(pair: Pair, metric: Metric, names: Mapping[int, str], values: Values, alpha: float) -> Row:
    base, other = (values[run.run_id][metric.name] for run in (pair.base, pair.other))
    if pair.kind == "earlier":
        first, second = (np.array(list(side.values())) for side in (base, other))
        ratio, count = inference.unpaired(first, second, alpha), min(len(first), len(second))
    else:
        both = sorted(base.keys() & other.keys())
        first, second = (np.array([side[number] for number in both]) for side in (base, other))
        ratio, count = inference.paired(first, second, alpha), len(both)
    return {
        **_head(pair, names),
        "metric": metric.name,
        "pairs": count,
        "base_median": float(np.median(first)) if count else None,
        "median": float(np.median(second)) if count else None,
        "ratio": ratio.estimate if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "alpha": alpha,
        "verdict": _verdict(pair, metric, ratio),
    }


def _head(pair: Pair, names: Mapping[int, str]) -> dict[str, object]:
    ids = {"run_id": pair.other.run_id, "base_run_id": pair.base.run_id}
    return {"kind": pair.kind, "run": names[pair.other.run_id], "base": names[pair.base.run_id], **ids}


def _not_compared(pair: Pair, names: Mapping[int, str]) -> Row:
    verdict = f"not compared: a run is {_fault(pair)}".replace("recording", "cut off")
    return {**_head(pair, names), "metric": "", "pairs": 0, "verdict": verdict}


def _verdict(pair: Pair, metric: Metric, ratio: Ratio | None) -> str:
    if ratio is None:
        return "too few pairs"
    least = metric.drift if pair.kind == "earlier" else EFFECT_MIN
    up = ratio.low > 1 and ratio.estimate > 1 + least
    down = ratio.high < 1 and ratio.estimate < 1 / (1 + least)
    if not up and not down:
        return "no difference shown"
    if pair.kind == "earlier":
        return "suspect" if up != metric.more_is_better else "better, at another time"
    return "better" if up == metric.more_is_better else "worse"


def repetition_values(repetitions: Iterable[Row], percentiles: Iterable[Row]) -> Values:
    """The metrics of each repetition without a fault; values that are not positive are omitted."""
    values: dict[int, dict[str, dict[int, float]]] = {}

    def put(row: Row, name: str, value: float | None) -> None:
        if value is not None and value > 0:
            values.setdefault(row["run_id"], {}).setdefault(name, {})[row["repetition"]] = float(value)

    for row in repetitions:
        if row["fault"]:
            continue
        if row["duration_us"] > 0:
            put(row, "deliveries_per_s", row["deliveries"] * 1e6 / row["duration_us"])
        if row["target_cpu_us"] is not None and row["deliveries"] > 0:
            put(row, "cpu_us_per_delivery", row["target_cpu_us"] / row["deliveries"])
        if row["generator_cpu_us"] is not None and row["duration_us"] > 0:
            put(row, "generator_share", row["generator_cpu_us"] / row["duration_us"])
        put(row, "peak_rss_bytes", row["peak_rss_bytes"])
    for row, name in itertools.product(percentiles, ("p50_us", "p99_us")):
        if row["repetition"] is not None and row["series"] == "intended":
            put(row, name, row[name])
    return values
