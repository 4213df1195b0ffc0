"""Curves fitted to a delivery's cost as one parameter grows: subscribers, body size or threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

POINTS_MIN = 3
"""Any curve fits two points."""


@dataclass(frozen=True)
class Curve:
    """y as a function of x by one of `MODELS`, with coefficients a and b."""

    model: str
    a: float
    b: float
    error: float
    """Root mean square of the points' relative errors."""

    def at(self, x: Floats) -> Floats:
        """The curve's value at each x."""
        return MODELS[self.model](x, self.a, self.b)

    def __str__(self) -> str:
        texts = {"line": "{a:.4g} + {b:.4g}·x", "shared": "{a:.4g} + {b:.4g}/x", "power": "{a:.4g}·x^{b:.3g}"}
        return texts[self.model].format(a=self.a, b=self.b)


def _line(x: Floats, a: float, b: float) -> Floats:
    return a + b * x


def _shared(x: Floats, a: float, b: float) -> Floats:
    return a + b / x


def _power(x: Floats, a: float, b: float) -> Floats:
    return np.asarray(a * x**b, dtype=np.float64)


MODELS: dict[str, Callable[[Floats, float, float], Floats]] = {
    # A cost for each delivery, and one for each octet (or subscriber, or thread).
    "line": _line,
    # A cost for each delivery, and one for the message, shared by all its deliveries.
    "shared": _shared,
    # Neither: a straight line in a chart with two logarithmic axes.
    "power": _power,
}


def fit(x: Sequence[float], y: Sequence[float]) -> Curve | None:
    """The model with the least relative error; None for fewer than `POINTS_MIN` distinct x. x and y are positive."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(set(xs.tolist())) < POINTS_MIN:
        return None
    slope, intercept = np.polyfit(np.log(xs), np.log(ys), 1)
    candidates = [("power", math.exp(intercept), float(slope))]
    for model, term in (("line", xs), ("shared", 1 / xs)):
        weighted = np.column_stack([1 / ys, term / ys])
        (a, b), *_ = np.linalg.lstsq(weighted, np.ones_like(ys), rcond=None)
        candidates.append((model, float(a), float(b)))

    def error(model: str, a: float, b: float) -> float:
        return float(np.sqrt(np.mean((MODELS[model](xs, a, b) / ys - 1) ** 2)))

    curves = [Curve(*candidate, error(*candidate)) for candidate in candidates]
    return min(curves, key=lambda curve: curve.error)
