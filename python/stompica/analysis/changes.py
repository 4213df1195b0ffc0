"""Change points: where in a long run the level shifted, and stayed so.

Pettitt's rank test, again on both sides of what it finds. Ranks don't mind a few wild seconds; that neighbouring
seconds resemble each other is allowed for by how many independent values they are worth. Needs numpy and nothing
else: Spark sends this file to its workers.
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

SEGMENT_MIN = 10
"""Values between two change points, at least."""

EFFECT_MIN = 0.05
"""Smaller shifts are left out, as a share of the level."""

RESEMBLANCE_MAX = 0.95


@dataclass(frozen=True)
class Change:
    """The level shifts between `index` - 1 and `index`."""

    index: int
    before: float
    """Median from the change before to here."""
    after: float
    """Median from here to the next change."""
    p: float
    """How probable so large a shift is where there is none."""


def find(values: Floats, alpha: float) -> list[Change]:
    """All change points of a series, in order; where there is none, one is found with probability `alpha` at most."""
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


SCHEMA = "run_id long, repetition int, metric string, second int, before double, after double, ratio double, p double"
"""What `of_frame` gives for each change point, as Spark names it."""


def of_frame(metrics: Sequence[str], alpha: float) -> Callable[[Any], Any]:
    """A function from the seconds of one repetition, as a pandas frame, to a frame of its change points."""

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
    """Each edge once more, between its neighbours: the first cut of a series is made before the others are known."""
    found = sorted(edges)
    bounds = [0, *found, len(values)]
    refined = {}
    for before, edge, after in zip(bounds, found, bounds[2:], strict=False):
        split, p = _pettitt(values[before:after])
        refined[before + split if split else edge] = min(p, edges[edge])
    return refined


def _prune(values: Floats, edges: dict[int, float]) -> list[Change]:
    """Without shifts too small to matter, the smallest first."""
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
    """Where the ranks before and after differ most, and how probable that is by chance; 0 for too few values."""
    size = len(values)
    if size < 2 * SEGMENT_MIN:
        return 0, 1.0
    ranks = _ranks(values)
    steps = np.arange(1, size)
    sums = 2 * np.cumsum(ranks)[:-1] - steps * (size + 1)
    inside = np.abs(sums[SEGMENT_MIN - 1 : size - SEGMENT_MIN])
    # The test's sums favour the middle; for the place, each is taken by its spread.
    spread = np.sqrt(steps * (size - steps))[SEGMENT_MIN - 1 : size - SEGMENT_MIN]
    split = int(np.argmax(inside / spread)) + SEGMENT_MIN
    strength = float(np.max(inside)) ** 2 * _worth(values, split)
    return split, min(1.0, 2 * math.exp(-6 * strength / (size**3 + size**2)))


def _worth(values: Floats, split: int) -> float:
    """Independent values in one value, from how much neighbours resemble each other around the two medians."""
    rest = np.concatenate([values[:split] - np.median(values[:split]), values[split:] - np.median(values[split:])])
    ranks = _ranks(rest) - (len(rest) + 1) / 2
    spread = float(ranks @ ranks)
    resemblance = float(ranks[:-1] @ ranks[1:]) / spread if spread else 0.0
    resemblance = min(max(resemblance, 0.0), RESEMBLANCE_MAX)
    return (1 - resemblance) / (1 + resemblance)


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values sharing theirs."""
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = (np.cumsum(times) - (times - 1) / 2)[place]
    return shared
