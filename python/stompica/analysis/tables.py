"""The result tables with their columns and units, and their output as CSV and Parquet."""

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

_RUN_ID = Column("run_id", "int64", "", "run")
_RUN = Column("run", "string", "", "display name: workload, transport and variant")
_TYPES = {"int32": pa.int32(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}


def _table_of_runs(name: str, doc: str, *columns: Column) -> Table:
    """A table in which every row belongs to a run."""
    return Table(name, doc, (_RUN_ID, _RUN, *columns))


def _number(name: str, unit: str, doc: str) -> Column:
    return Column(name, "float64", unit, doc, nullable=True)


def _numbers(**docs: str) -> tuple[Column, ...]:
    """Columns of numbers without a unit, by name."""
    return tuple(_number(name, "", doc) for name, doc in docs.items())


def _text(name: str, doc: str) -> Column:
    return Column(name, "string", "", doc)


_RUNS = _table_of_runs(
    "runs",
    "Every run, with the medians over its repetitions.",
    _text("campaign", "runs of one campaign took turns"),
    _text("target", "the measured program, with its version"),
    _text("commit", "commit of the code; + if files had been modified"),
    _text("workload", "workload"),
    _text("transport", "transport of STOMP"),
    Column("subscribers", "int64", "subscriptions", "subscriptions that each message reaches"),
    Column("body_bytes", "int64", "bytes", "length of a body"),
    Column("writers", "int64", "threads", "threads of the target; 0: unknown"),
    Column("repetitions", "int64", "", "repetitions measured"),
    _number("deliveries_per_s", "1/s", "deliveries per second"),
    _number("cpu_us_per_delivery", "µs", "CPU of the target for each delivery"),
    _number("peak_rss_mib", "MiB", "peak resident memory of the target"),
    _number("generator_share", "", "CPU of the generator as a share of one core; above 0.8 it may be the limit"),
    _text("state", "complete, failed, cut off, or which files are missing"),
)

_PERCENTILES = _table_of_runs(
    "percentiles",
    "Latencies; percentiles are exact ranks of raw µs or of histogram buckets (upper bound).",
    Column("repetition", "int32", "", "repetition; empty: all of them together", nullable=True),
    _text(
        "series",
        "start of the latency; intended: scheduled time of sending; write: writing; window: writing of the batch",
    ),
    _text("source", "samples or histogram"),
    Column("count", "int64", "deliveries", "number of deliveries"),
    _number("mean_us", "µs", "mean"),
    *(
        Column(name, "int64", "µs", f"{part} of {whole} deliveries were not slower")
        for name, (part, whole) in QUANTILES.items()
    ),
    Column("max_us", "int64", "µs", "slowest"),
)

_COMPARISONS = Table(
    "comparisons",
    "Variants against their baseline: ratios with confidence intervals.",
    (
        _text("kind", "variant (took turns), peer (took turns, another broker) or earlier (measured at another time)"),
        _RUN,
        _text("base", "the run it is compared with"),
        _RUN_ID,
        Column("base_run_id", "int64", "", "run it is compared with"),
        _text("metric", "the compared metric"),
        _text("verdict", "worse, better, no difference shown, too few pairs, suspect, not compared"),
        Column("pairs", "int64", "", "repetitions compared"),
        *_numbers(
            base_median="median of the baseline",
            median="median of this run",
            ratio="this run divided by the baseline, geometric mean over the pairs",
            ratio_low="lower end of the confidence interval",
            ratio_high="upper end of the confidence interval",
            alpha="error probability of this interval: 0.01 divided by the comparisons of its campaign",
        ),
    ),
)

_CURVES = Table(
    "curves",
    "Cost of a delivery as one parameter grows, with the fitted curve.",
    (
        _text("group", "the fixed parameters"),
        _text("sweep", "the growing parameter: subscribers, body_bytes or writers"),
        Column("points", "int64", "", "distinct values of it"),
        *_numbers(from_x="lowest value", to_x="highest value"),
        _text("curve", "µs of CPU for each delivery; x is the growing parameter"),
        *_numbers(a="first coefficient", b="second coefficient", error="root mean square of the relative errors"),
    ),
)

_STAGES = _table_of_runs(
    "stages",
    "Time in the broker's stages.",
    _text("stage", "stage"),
    Column("passes", "int64", "", "passes through it"),
    _number("total_ms", "ms", "time in it, from the midpoints of the buckets"),
    _number("share", "", "share of the time in all stages"),
    _number("mean_ns", "ns", "mean time of a pass"),
)

_BOTTLENECKS = _table_of_runs(
    "bottlenecks",
    "What limited each run.",
    _text("bottleneck", "generator, a stage of the broker, the target's CPU, rate, or unknown"),
    _number("share", "", "used share of the limit"),
    _text("why", "the reason"),
)

_CHANGES = _table_of_runs(
    "changes",
    "Change points: where the level of a long run shifted.",
    Column("repetition", "int32", "", "repetition"),
    _text("metric", "the metric that shifted"),
    Column("second", "int32", "s", "time of the shift, from the start of the run"),
    *_numbers(before="median before", after="median after", ratio="after divided by before", p="probability by chance"),
)

_FIGURES = _table_of_runs(
    "figures",
    "Other figures of the runs: memory of connections and messages, shares, ratios.",
    _text("figure", "name, with its unit at the end"),
    _number("value", "", "median over the repetitions"),
)

_QUARANTINE = Table(
    "quarantine",
    "Files that were moved to quarantine.",
    (_text("path", "original path within the recordings"), _text("reason", "the defect")),
)

_TABLES = (_RUNS, _FIGURES, _PERCENTILES, _COMPARISONS, _CURVES, _STAGES, _BOTTLENECKS, _CHANGES, _QUARANTINE)
RESULTS: dict[str, Table] = {table.name: table for table in _TABLES}
"""Tables collected in the driver; Spark writes `per_second` and `per_minute`, which grow with the runs' length."""

Row = Mapping[str, Any]


def arrow_table(name: str, rows: Iterable[Row]) -> pa.Table:
    """Converts rows to an Arrow table with the columns of RESULTS."""
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
    """Writes NAME.csv from all Parquet files in the folder NAME.parquet, a batch of rows at a time."""
    stored = pyarrow.dataset.dataset(folder, format="parquet")
    with pyarrow.csv.CSVWriter(folder.with_suffix(".csv"), stored.schema) as file:
        for batch in stored.to_batches():
            file.write_batch(batch)
