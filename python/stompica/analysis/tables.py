"""The tables of results: every column with its unit, and how they are written, as CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

from stompica.analysis.ranks import QUANTILES
from stompica.recording.schema import Column, Table

_ID = Column("run_id", "int64", "", "run")
_NAME = Column("run", "string", "", "workload, transport and variant, for people")
_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}


def _number(name: str, unit: str, doc: str) -> Column:
    return Column(name, "float64", unit, doc, nullable=True)


def _text(name: str, doc: str) -> Column:
    return Column(name, "string", "", doc)


_RUNS = Table(
    "runs",
    "Every run, with the medians over its repetitions.",
    (
        _ID,
        _NAME,
        _text("campaign", "runs of one campaign took turns"),
        _text("target", "what was measured, with its version"),
        _text("commit", "commit of the code; + where files differed from it"),
        _text("workload", "workload"),
        _text("transport", "what carried STOMP"),
        Column("subscribers", "int64", "subscriptions", "subscriptions that each message reaches"),
        Column("body_bytes", "int64", "bytes", "length of a body"),
        Column("writers", "int64", "threads", "threads of the target; 0: unknown"),
        Column("repetitions", "int64", "", "repetitions measured"),
        _number("deliveries_per_s", "1/s", "deliveries per second"),
        _number("cpu_us_per_delivery", "µs", "CPU of the target for each delivery"),
        _number("peak_rss_mib", "MiB", "most memory resident in the target"),
        _number("generator_share", "", "CPU of the generator as a share of one core; above 0.8 it may be the limit"),
        _text("state", "complete, failed, cut off, or which files lack"),
    ),
)

_PERCENTILES = Table(
    "percentiles",
    "Latencies; percentiles are exact ranks, of raw µs or of histogram buckets (upper bound).",
    (
        _ID,
        _NAME,
        Column("repetition", "int32", "", "repetition; empty: all together", nullable=True),
        _text(
            "series",
            "intended: from when a message was meant to be sent; write; window: from when its batch was written",
        ),
        _text("source", "samples or histogram"),
        Column("count", "int64", "deliveries", "how many"),
        _number("mean_us", "µs", "mean"),
        *(
            Column(name, "int64", "µs", f"{part} of {whole} were not slower")
            for name, (part, whole) in QUANTILES.items()
        ),
        Column("max_us", "int64", "µs", "slowest"),
    ),
)

_COMPARISONS = Table(
    "comparisons",
    "Variants against their baseline: ratios with confidence intervals.",
    (
        _text("kind", "variant (took turns), peer (took turns, another broker) or earlier (measured at another time)"),
        _NAME,
        _text("base", "what it is compared with"),
        Column("run_id", "int64", "", "run"),
        Column("base_run_id", "int64", "", "run it is compared with"),
        _text("metric", "what is compared"),
        _text("verdict", "worse, better, no difference shown, too few pairs, suspect, not compared"),
        Column("pairs", "int64", "", "repetitions compared"),
        _number("base_median", "", "median of the baseline"),
        _number("median", "", "median of this run"),
        _number("ratio", "", "this run by the baseline, geometric mean over the pairs"),
        _number("ratio_low", "", "lower end of the confidence interval"),
        _number("ratio_high", "", "upper end of the confidence interval"),
        _number("alpha", "", "probability of error of this interval: 0.01 by the comparisons of its campaign"),
    ),
)

_CURVES = Table(
    "curves",
    "Cost of a delivery as one thing grows, with the fitted curve.",
    (
        _text("group", "what stayed the same"),
        _text("sweep", "what grew: subscribers, body_bytes or writers"),
        Column("points", "int64", "", "different values of it"),
        _number("from_x", "", "least value"),
        _number("to_x", "", "greatest value"),
        _text("curve", "µs of CPU for each delivery, x being what grew"),
        _number("a", "", "first coefficient"),
        _number("b", "", "second coefficient"),
        _number("error", "", "root of the mean squared relative error"),
    ),
)

_STAGES = Table(
    "stages",
    "Time spent in the broker's stages.",
    (
        _ID,
        _NAME,
        _text("stage", "stage"),
        Column("passes", "int64", "", "passes through it"),
        _number("total_ms", "ms", "time in it, from the middles of the buckets"),
        _number("share", "", "of the time in all stages"),
        _number("mean_ns", "ns", "mean time of a pass"),
    ),
)

_BOTTLENECKS = Table(
    "bottlenecks",
    "What limited each run.",
    (
        _ID,
        _NAME,
        _text("bottleneck", "generator, a stage of the broker, its CPU, its rate, or unknown"),
        _number("share", "", "how much of the limit it used"),
        _text("why", "the reason in words"),
    ),
)

_CHANGES = Table(
    "changes",
    "Change points: where the level of a long run shifted.",
    (
        _ID,
        _NAME,
        Column("repetition", "int32", "", "repetition"),
        _text("metric", "what shifted"),
        Column("second", "int32", "s", "when, from the beginning of the run"),
        _number("before", "", "median before"),
        _number("after", "", "median after"),
        _number("ratio", "", "after by before"),
        _number("p", "", "probability of such a shift by chance"),
    ),
)

_FIGURES = Table(
    "figures",
    "What else the runs measured: memory of connections and messages, shares, ratios.",
    (
        _ID,
        _NAME,
        _text("figure", "what, with its unit at the end"),
        _number("value", "", "median over the repetitions"),
    ),
)

_QUARANTINE = Table(
    "quarantine",
    "Files that were put aside.",
    (_text("path", "where it was, within the recordings"), _text("reason", "what is wrong with it")),
)

_TABLES = (_RUNS, _FIGURES, _PERCENTILES, _COMPARISONS, _CURVES, _STAGES, _BOTTLENECKS, _CHANGES, _QUARANTINE)
RESULTS: dict[str, Table] = {table.name: table for table in _TABLES}
"""Tables that are collected; `per_second` and `per_minute`, which grow with the runs' length, are written by Spark."""

Row = Mapping[str, Any]


def arrow_table(name: str, rows: Iterable[Row]) -> pa.Table:
    """Rows as an Arrow table with the columns of RESULTS."""
    table = RESULTS[name]
    fields = [pa.field(column.name, _TYPES[column.type], nullable=column.nullable) for column in table.columns]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))


def write(folder: Path, name: str, rows: Iterable[Row]) -> None:
    """Writes NAME.csv and NAME.parquet into `folder`."""
    content = arrow_table(name, rows)
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(content, folder / f"{name}.csv")
    pq.write_table(content, folder / f"{name}.parquet", compression="zstd")


def write_csv(folder: Path) -> None:
    """Makes NAME.csv of all Parquet files in the folder NAME.parquet, a few rows at a time."""
    stored = pyarrow.dataset.dataset(folder, format="parquet")
    with pyarrow.csv.CSVWriter(folder.with_suffix(".csv"), stored.schema) as file:
        for batch in stored.to_batches():
            file.write_batch(batch)
