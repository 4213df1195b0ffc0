"""Change points: the times at which the level of a long run shifted permanently.

Uses Pettitt's rank test, recursively on both sides of each change point. Ranks are robust against outliers; correlation
between neighbouring seconds is corrected by the effective number of independent values. Needs only numpy: Spark sends
this file to its workers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SCHEMA = "run_id long, repetition int, metric string, second int, before double, after double, ratio double, p double"
"""Schema for Spark of the rows that `of_frame` returns for each change point."""

SEGMENT_MIN = 10
"""Minimum number of values between two change points."""

EFFECT_MIN = 0.05
"""Smaller shifts are ignored, as a share of the level."""

CORRELATION_MAX = 0.95


@dataclass(frozen=True)
class Change:
    """The level shifts between `index` - 1 and `index`."""

    index: int
    before: float
    """Median from the previous change point to this one."""
    after: float
    """Median from this change point to the next one."""
    p: float
    """Probability of a shift this large by chance."""


def find(values: Floats, alpha: float) -> list[Change]:
    """All change points of a series, in order; the probability of a false one in a stable series is at most `alpha`."""
    size = len(values)
    if size < 2 * SEGMENT_MIN:
        return []
    edges: dict[int, float] = {}
    open_parts = [(0, size)]
    while open_parts:
        start, end = open_parts.pop()
        split, p = _pettitt(values[start:end])
        if split and p < alpha:
            edges[start + split] = p
            open_parts += [(start, start + split), (start + split, end)]
    return _prune(values, _refine(values, edges))


def of_frame(metrics: Sequence[str], alpha: float) -> Callable[[Any], Any]:
    """Returns a function from the seconds of one repetition, a pandas frame, to a frame of its change points."""

    def search(seconds: Any) -> Any:
        import pandas as pd

        ordered = seconds.sort_values("second")
        rows = []
        for metric in metrics:
            series = ordered[["second", metric]].dropna()
            when = series["second"].to_numpy()
            for change in find(series[metric].to_numpy(dtype=np.float64), alpha):
                ratio = change.after / change.before if change.before else math.nan
                place = (ordered["run_id"].iloc[0], ordered["repetition"].iloc[0], metric, when[change.index])
                rows.append((*place, change.before, change.after, ratio, change.p))
        return pd.DataFrame(rows, columns=[column.split()[0] for column in SCHEMA.split(", ")])

    return search


def _refine(values: Floats, edges: dict[int, float]) -> dict[int, float]:
    """Locates each edge again between its neighbours: the first ones were found before the others were known."""
    found = sorted(edges)
    bounds = [0, *found, len(values)]
    refined = {}
    for before, edge, after in zip(bounds, found, bounds[2:], strict=False):
        split, p = _pettitt(values[before:after])
        refined[before + split if split else edge] = min(p, edges[edge])
    return refined


def _prune(values: Floats, edges: dict[int, float]) -> list[Change]:
    """Removes shifts under EFFECT_MIN, the smallest first."""
    while True:
        bounds = [0, *sorted(edges), len(values)]
        levels = [float(np.median(values[a:b])) for a, b in itertools.pairwise(bounds)]
        pairs = zip(bounds[1:-1], levels, levels[1:], strict=False)
        changes = [Change(edge, before, after, edges[edge]) for edge, before, after in pairs]
        small = [change for change in changes if _effect(change) < EFFECT_MIN]
        if not small:
            return changes
        del edges[min(small, key=_effect).index]


def _effect(change: Change) -> float:
    scale = max(abs(change.before), abs(change.after))
    return abs(change.after - change.before) / scale if scale else 0.0


def _pettitt(values: Floats) -> tuple[int, float]:
    """The index where ranks before and after differ most, and its probability by chance; 0 for too few values."""
    size = len(values)
    if size < 2 * SEGMENT_MIN:
        return 0, 1.0
    ranks = _ranks(values)
    steps = np.arange(1, size)
    sums = 2 * np.cumsum(ranks)[:-1] - steps * (size + 1)
    inside = np.abs(sums[SEGMENT_MIN - 1 : size - SEGMENT_MIN])
    # The test's sums favour the middle: to locate the change, each is divided by its standard deviation.
    spread = np.sqrt(steps * (size - steps))[SEGMENT_MIN - 1 : size - SEGMENT_MIN]
    split = int(np.argmax(inside / spread)) + SEGMENT_MIN
    strength = float(np.max(inside)) ** 2 * _independence(values, split)
    return split, min(1.0, 2 * math.exp(-6 * strength / (size**3 + size**2)))


def _independence(values: Floats, split: int) -> float:
    """Share of independent values, from the correlation of neighbours around the two medians."""
    rest = np.concatenate([values[:split] - np.median(values[:split]), values[split:] - np.median(values[split:])])
    ranks = _ranks(rest) - (len(rest) + 1) / 2
    spread = float(ranks @ ranks)
    correlation = float(ranks[:-1] @ ranks[1:]) / spread if spread else 0.0
    correlation = min(max(correlation, 0.0), CORRELATION_MAX)
    return (1 - correlation) / (1 + correlation)


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share their mean rank."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = (np.cumsum(times) - (times - 1) / 2)[place]
    return shared
