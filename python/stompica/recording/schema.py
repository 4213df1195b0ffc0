"""The definition of the recording format: every Parquet table and column with type, unit and meaning.

The writer's Arrow schemas, the analysis's Spark schemas and the tables of docs/recording.md are derived from it.
It does not need pyarrow, so that the analysis can use it anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FORMAT = 1
"""Version of the format. Readers accept no other. A new nullable column does not change it."""

Type = Literal["int32", "int64", "float64", "string"]


@dataclass(frozen=True)
class Column:
    """A column: its name, which ends in its unit, its type and its meaning."""

    name: str
    type: Type
    unit: str
    """Empty for text, ids and pure numbers."""
    doc: str
    """Its meaning, in one line."""
    nullable: bool = False
    """It may be null; a file may lack it, and then it is null in every row."""


@dataclass(frozen=True)
class Table:
    """A kind of Parquet file in a run's folder: `NAME.parquet` or `NAME-000001.parquet`, `NAME-000002.parquet`, …"""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)


_RUN = Column("run_id", "int64", "", "`run_id` of run.json, the same in every row")
_REPETITION = Column("repetition", "int32", "", "number of the repetition, from 0; always 0 in a live recording")
_SHARD = Column("shard", "int32", "", "shard of the broker; empty: the whole broker", nullable=True)
_DURATION = Column("duration_us", "int64", "µs", "length of the interval")
_COUNTED = (
    Column("messages", "int64", "messages", "messages sent"),
    Column("deliveries", "int64", "deliveries", "messages delivered and checked"),
)
_SERIES = (
    "`intended`: from the scheduled time of sending, `write`: from the time of writing, both at a fixed rate; "
    "`window`: from the time when its batch was written by a publisher with a window, which includes queueing in the "
    "window"
)


def _at(doc: str) -> Column:
    return Column("at_us", "int64", "µs since 1970, UTC", doc)


def _buckets(unit: str, symbol: str) -> tuple[Column, Column]:
    return (
        Column(f"bucket_low_{unit}", "int64", symbol, "lowest value of the bucket"),
        Column(f"bucket_high_{unit}", "int64", symbol, "highest value of the bucket, inclusive"),
    )


_TABLES = (
    Table(
        "repetitions",
        "One row for each measured repetition.",
        (
            _RUN,
            _REPETITION,
            _at("start of the measurement, after the warm-up"),
            _DURATION,
            *_COUNTED,
            Column("target_cpu_us", "int64", "µs", "user and system time of the target's processes", nullable=True),
            Column("generator_cpu_us", "int64", "µs", "user and system time of the generator", nullable=True),
            Column("peak_rss_bytes", "int64", "bytes", "peak resident memory of the target", nullable=True),
            Column("fault", "string", "", "why the repetition failed; empty: it did not", nullable=True),
        ),
    ),
    Table(
        "throughput",
        "The client's counts for each interval.",
        (_RUN, _REPETITION, _at("start of the interval"), _DURATION, *_COUNTED),
    ),
    Table(
        "latency",
        "Latency histograms, one for each interval and series; a row for each non-empty bucket.",
        (
            _RUN,
            _REPETITION,
            Column("series", "string", "", _SERIES),
            _at("start of the interval"),
            _DURATION,
            *_buckets("us", "µs"),
            Column("count", "int64", "deliveries", "deliveries in the bucket, at least 1"),
        ),
    ),
    Table(
        "samples",
        "Raw latencies of the series `intended`, when requested; they take precedence over the histograms.",
        (
            _RUN,
            _REPETITION,
            _at("time of the delivery"),
            Column("latency_us", "int32", "µs", "latency, rounded down, at most 2³¹−1"),
        ),
    ),
    Table(
        "diag",
        "Answers of DIAG, one row for each number.",
        (
            _RUN,
            _at("time of the answer"),
            Column("query", "string", "", "DIAG's query, such as `network`"),
            _SHARD,
            Column("name", "string", "", "name of the number; for a single queue `QUEUE.NUMBER`: `/queue/a.size`"),
            Column("value", "float64", "see `unit`", "the number: a level, or a counter since the broker's start"),
            Column("unit", "string", "", "`count`, `bytes`, `us`, `ns`, `ms`; `count` for yes and no (1 and 0)"),
            Column(
                "part_of",
                "string",
                "",
                "`QUERY.NAME` of the total that already includes this number; empty: it is not part of one",
                nullable=True,
            ),
        ),
    ),
    Table(
        "stages",
        "Timings of the broker's stages, one row for each non-empty bucket.",
        (
            _RUN,
            _at("end of the interval"),
            _SHARD,
            Column("stage", "string", "", "`read`, `parse`, `route`, `encode`, `write`; they do not overlap"),
            *_buckets("ns", "ns"),
            Column("count", "int64", "passes", "passes through the stage since the previous `at_us`, at least 1"),
        ),
    ),
    Table(
        "process",
        "CPU and memory of the processes, read at intervals.",
        (
            _RUN,
            _REPETITION,
            _at("time of the reading"),
            Column("process", "string", "", "`target` or `generator`, including all child processes"),
            Column("cpu_us", "int64", "µs", "user and system time since the process started"),
            Column("rss_bytes", "int64", "bytes", "resident memory", nullable=True),
            Column("threads", "int32", "threads", "number of threads", nullable=True),
        ),
    ),
)
TABLES: dict[str, Table] = {table.name: table for table in _TABLES}
"""All tables, by name."""


def table_of(file_name: str) -> Table | None:
    """Returns the table that a file in a run's folder belongs to; None if it is not part of the recording."""
    stem, dot, suffix = file_name.rpartition(".")
    if not dot or suffix != "parquet":
        return None
    name, dash, number = stem.partition("-")
    if dash and not number.isdigit():
        return None
    return TABLES.get(name)
