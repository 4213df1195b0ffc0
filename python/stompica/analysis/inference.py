"""Confidence intervals of ratios between variants, with few assumptions, for small samples.

All calculations use logarithms, so that a factor of two up weighs as much as one down. An interval is the hull of two:
Student's, which accounts for small samples, and the bootstrap's, which accounts for the shape of the data. With five
pairs a bootstrap alone gives intervals that are far too narrow.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PAIRS_MIN = 5
"""Fewer pairs give no result."""

RESAMPLES = 10_000
SEED = 61613
"""Fixed, so that the same data give the same report."""


@dataclass(frozen=True)
class Ratio:
    """An estimated ratio with its confidence interval."""

    estimate: float
    low: float
    high: float


def paired(base: Floats, other: Floats, alpha: float) -> Ratio | None:
    """Ratio of `other` to `base`; values with the same index were measured in the same turn.

    None for too few pairs. Values must be positive.
    """
    if len(base) < PAIRS_MIN:
        return None
    logs = np.log(other) - np.log(base)
    means = _weights(len(logs)) @ logs
    return _hull(float(logs.mean()), _sem(logs), len(logs) - 1, means, alpha)


def unpaired(base: Floats, other: Floats, alpha: float) -> Ratio | None:
    """Ratio of the geometric means of two samples that were measured at different times. None for too few."""
    if min(len(base), len(other)) < PAIRS_MIN:
        return None
    first, second = np.log(base), np.log(other)
    means = _weights(len(second), 1) @ second - _weights(len(first), 2) @ first
    error = math.hypot(_sem(first), _sem(second))
    freedom = min(len(first), len(second)) - 1
    return _hull(float(second.mean() - first.mean()), error, freedom, means, alpha)


def _sem(logs: Floats) -> float:
    return float(logs.std(ddof=1)) / math.sqrt(len(logs))


def _hull(centre: float, error: float, freedom: int, means: Floats, alpha: float) -> Ratio:
    reach = student_quantile(1 - alpha / 2, freedom) * error
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    low, high = min(float(low), centre - reach), max(float(high), centre + reach)
    return Ratio(math.exp(centre), math.exp(low), math.exp(high))


@functools.cache
def _weights(size: int, stream: int = 0) -> Floats:
    """One row for each resample: how often it draws each value, divided by `size`."""
    drawn = np.random.default_rng([SEED, size, stream]).multinomial(size, np.full(size, 1 / size), RESAMPLES)
    weights: Floats = drawn / size
    return weights


@functools.cache
def student_quantile(p: float, freedom: int) -> float:
    """The p-quantile, p ≥ ½, of Student's t with `freedom` degrees of freedom."""
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < p else (low, middle)
    return high


def student_cdf(t: float, freedom: int) -> float:
    """Probability that Student's t is at most t ≥ 0, by the finite sums for integer degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (1.0, 1.0) if freedom % 2 == 0 else (cosine, cosine)
    for k in range(2 if freedom % 2 == 0 else 3, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if freedom % 2 == 0:
        return 0.5 + sine * total / 2
    return 0.5 + (angle + (sine * total if freedom > 1 else 0.0)) / math.pi
