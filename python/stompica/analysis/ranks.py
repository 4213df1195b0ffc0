"""Percentiles of counted values by exact ranks. Needs numpy and pyarrow only: Spark sends this file to its workers.

Rows are ordered by value and their counts summed from the least on; the percentile q is the first value that at least
q of all do not exceed. All is integers: the result depends neither on the order of the rows nor on where it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

QUANTILES: dict[str, tuple[int, int]] = {
    "p50_us": (50, 100),
    "p90_us": (90, 100),
    "p99_us": (99, 100),
    "p999_us": (999, 1000),
    "p9999_us": (9999, 10000),
}
"""Column and fraction of each percentile; fractions of integers, so that ranks are exact."""

NO_SECOND = -1
"""`second` of rows that belong to no second."""

FIGURES = "count long, mean_us double, p50_us long, p90_us long, p99_us long, p999_us long, p9999_us long, max_us long"
SCHEMA = f"run_id long, repetition int, series string, source string, second int, {FIGURES}"
"""What `of_run` gives, as Spark names it: a second, a repetition, or (`repetition` empty) the whole run."""


def of_run(rows: Any) -> Any:
    """The percentiles of one run from an Arrow table of its counted latencies.

    Columns: run_id, repetition, series, source, second, in_total, low_us, value_us, count. Rows with `in_total` make
    the repetitions and the run, those with a second make the seconds (of the series `intended`).
    """
    series = rows["series"].combine_chunks().dictionary_encode()
    source = rows["source"].combine_chunks().dictionary_encode()
    names, sources = series.dictionary.to_pylist(), source.dictionary.to_pylist()
    repetition, second = (rows[name].to_numpy().astype(np.int64) for name in ("repetition", "second"))
    low, value, count = (rows[name].to_numpy() for name in ("low_us", "value_us", "count"))
    kind = series.indices.to_numpy() * np.int64(len(sources)) + source.indices.to_numpy()
    in_total = rows["in_total"].to_numpy(zero_copy_only=False)
    in_second = (second != NO_SECOND) & (series.indices.to_numpy() == _index(names, "intended"))
    whole, none = np.full_like(repetition, -1), np.full_like(second, NO_SECOND)
    parts = [
        _figures(chosen, keys, low, value, count)
        for chosen, keys in (
            (in_total, (repetition, none, kind)),
            (in_total, (whole, none, kind)),
            (in_second, (repetition, second, kind)),
        )
    ]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    numbers, seconds, kinds = (columns.pop(f"key{place}") for place in range(3))
    size = len(numbers)
    return pa.table(
        {
            "run_id": pa.array(np.full(size, rows["run_id"][0].as_py() if size else 0), pa.int64()),
            "repetition": pa.array(numbers, pa.int32(), mask=numbers < 0),
            "series": pa.array([names[key // len(sources)] for key in kinds.tolist()], pa.string()),
            "source": pa.array([sources[key % len(sources)] for key in kinds.tolist()], pa.string()),
            "second": pa.array(seconds, pa.int32()),
            **columns,
        }
    )


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _figures(chosen: Any, keys: Sequence[Ints], low: Ints, value: Ints, count: Ints) -> dict[str, npt.NDArray[Any]]:
    """One entry for each different combination of `keys` among the chosen rows."""
    keys = [key[chosen] for key in keys]
    low, value, count = low[chosen], value[chosen], count[chosen]
    order = np.lexsort((value, *keys))
    keys = [key[order] for key in keys]
    low, value, count = low[order], value[order], count[order]
    starts = np.flatnonzero(_differs(keys)) if len(value) else np.zeros(0, np.int64)
    ends = np.append(starts[1:], len(value)) if len(starts) else starts
    passed = np.cumsum(count)
    before = passed[starts] - count[starts]
    total = passed[ends - 1] - before
    found = {f"key{place}": key[starts] for place, key in enumerate(keys)}
    found["count"] = total
    doubled = np.add.reduceat((low + value) * count, starts) if len(starts) else starts
    found["mean_us"] = doubled / (2 * total)
    for name, (part, whole) in QUANTILES.items():
        rank = (total * part + whole - 1) // whole
        found[name] = value[np.searchsorted(passed, before + rank)]
    found["max_us"] = value[ends - 1]
    return found


def _differs(keys: Sequence[Ints]) -> npt.NDArray[np.bool_]:
    """Where a row's keys are not those of the row before; the first row's are not."""
    different = np.ones(len(keys[0]), dtype=np.bool_)
    different[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return different
