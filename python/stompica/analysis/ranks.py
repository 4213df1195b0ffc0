"""Percentiles of counted values by exact ranks. Needs only numpy and pyarrow: Spark sends this file to its workers.

Rows are sorted by value and their counts summed in that order; the percentile q is the lowest value that at least a
share q of all values does not exceed. All arithmetic is on integers: the result depends neither on the order of the
rows nor on their distribution over workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Figures = dict[str, npt.NDArray[Any]]

QUANTILES: dict[str, tuple[int, int]] = {
    "p50_us": (50, 100),
    "p90_us": (90, 100),
    "p99_us": (99, 100),
    "p999_us": (999, 1000),
    "p9999_us": (9999, 10000),
}
"""Column and fraction of each percentile; the fractions are integers, so that ranks are exact."""

NO_SECOND = -1
"""`second` of rows that do not belong to a second."""

SHOWN = ("intended", "window")
"""The series that represent a run's latency; a run has one of them, depending on how its load is paced."""

FIGURES = "count long, mean_us double, p50_us long, p90_us long, p99_us long, p999_us long, p9999_us long, max_us long"
SCHEMA = f"run_id long, repetition int, series string, source string, second int, {FIGURES}"
"""The result's schema for Spark; a row is for a second, a repetition, or (`repetition` null) the whole run."""


def of_histograms(
    starts: Mapping[int, int], sampled: Collection[int], *, totals: bool = True, seconds: bool = True
) -> Callable[[Any], Any]:
    """Returns a function from an Arrow table of histogram rows to their percentiles.

    Columns: run_id, repetition, series, bucket_low_us, bucket_high_us, count, and for `seconds` at_us. `totals` adds
    repetitions and runs, without the series `intended` of the runs `sampled`; `seconds` adds seconds, for SHOWN only.
    `starts` has each run's start in µs since 1970.
    """
    known = np.array(sorted(starts), np.int64)
    began = np.array([starts[run] for run in known.tolist()], np.int64)
    replaced = np.isin(known, np.array(sorted(sampled), np.int64))

    def search(rows: Any) -> Any:
        run, repetition, low, value, count = _ints(
            rows, "run_id", "repetition", "bucket_low_us", "bucket_high_us", "count"
        )
        series = rows["series"].combine_chunks().dictionary_encode()
        names, kind = series.dictionary.to_pylist(), series.indices.to_numpy().astype(np.int64)
        place = np.searchsorted(known, run)
        intended = kind == (names.index("intended") if "intended" in names else -1)
        shown = np.isin(names, SHOWN)[kind]
        none = np.full_like(run, NO_SECOND)
        wanted: list[tuple[Any, Sequence[Ints]]] = []
        if totals:
            chosen = ~(intended & replaced[place])
            wanted += [(chosen, (run, repetition, none, kind)), (chosen, (run, np.full_like(run, -1), none, kind))]
        if seconds:
            second = np.maximum((_ints(rows, "at_us")[0] - began[place]) // 1_000_000, 0)
            wanted.append((shown, (run, repetition, second, kind)))
        parts = [_figures([key[of] for key in keys], low[of], value[of], count[of]) for of, keys in wanted]
        return _table(parts, names)

    return search


def _ints(rows: Any, *names: str) -> list[Ints]:
    return [rows[name].to_numpy().astype(np.int64) for name in names]


def _table(parts: Sequence[Figures], series: Sequence[str]) -> Any:
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    runs, numbers, seconds, kinds = (columns.pop(f"key{place}") for place in range(4))
    return pa.table(
        {
            "run_id": pa.array(runs, pa.int64()),
            "repetition": pa.array(numbers, pa.int32(), mask=numbers < 0),
            "series": pa.array([series[kind] for kind in kinds.tolist()], pa.string()),
            "source": pa.array(["histogram"] * len(kinds), pa.string()),
            "second": pa.array(seconds, pa.int32()),
            **columns,
        }
    )


def _figures(keys: Sequence[Ints], low: Ints, value: Ints, count: Ints) -> Figures:
    """The percentiles for each distinct combination of `keys`."""
    order = np.lexsort((value, *keys))
    keys = [key[order] for key in keys]
    low, value, count = low[order], value[order], count[order]
    starts = np.flatnonzero(_differs(keys)) if len(value) else np.zeros(0, np.int64)
    ends = np.append(starts[1:], len(value)) if len(starts) else starts
    passed = np.cumsum(count)
    before = passed[starts] - count[starts]
    total = passed[ends - 1] - before
    found: Figures = {f"key{place}": key[starts] for place, key in enumerate(keys)}
    found["count"] = total
    doubled = np.add.reduceat((low + value) * count, starts) if len(starts) else starts
    found["mean_us"] = doubled / (2 * total)
    for name, (part, whole) in QUANTILES.items():
        rank = (total * part + whole - 1) // whole
        found[name] = value[np.searchsorted(passed, before + rank)]
    found["max_us"] = value[ends - 1]
    return found


def _differs(keys: Sequence[Ints]) -> npt.NDArray[np.bool_]:
    """Whether each row's keys differ from those of the previous row; true for the first."""
    different = np.ones(len(keys[0]), dtype=np.bool_)
    different[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return different
