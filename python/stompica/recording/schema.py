"""The one table of the recording format: every Parquet table, column, type, unit and meaning.

The Arrow schemas of the writer, the Spark schemas of the analysis and the tables of docs/recording.md follow from it.
Nothing here needs pyarrow, so that the analysis can use it wherever it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FORMAT = 1
"""Version of the format. A reader takes no other. A new column that may be empty does not change it."""

Type = Literal["int32", "int64", "float64", "string"]


@dataclass(frozen=True)
class Column:
    """A column: its name, which ends in its unit, its type, and what it says."""

    name: str
    type: Type
    unit: str
    doc: str
    nullable: bool = False
    """It may be empty; a file may lack it, and then it is empty in every row."""


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
_REPETITION = Column("repetition", "int32", "", "number of the repetition, from 0; in a live recording always 0")
_SHARD = Column("shard", "int32", "", "shard of the broker; empty: the whole broker", nullable=True)


def _at(doc: str) -> Column:
    return Column("at_us", "int64", "µs since 1970, UTC", doc)


_SERIES = (
    "`intended`: from the moment a message was meant to be sent, `write`: from the moment it was written, both at a "
    "fixed rate; `window`: from the moment its batch was written by a publisher under a window, so that the queueing "
    "which the window allows is part of it"
)
_DURATION = Column("duration_us", "int64", "µs", "length of the interval")

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "repetitions",
            "One row for each measured repetition.",
            (
                _RUN,
                _REPETITION,
                _at("begin of what was measured, warm-up excluded"),
                _DURATION,
                Column("messages", "int64", "messages", "messages sent"),
                Column("deliveries", "int64", "deliveries", "messages delivered and checked"),
                Column("target_cpu_us", "int64", "µs", "user and system time of the target's processes", nullable=True),
                Column("generator_cpu_us", "int64", "µs", "user and system time of the generator", nullable=True),
                Column("peak_rss_bytes", "int64", "bytes", "most memory resident in the target", nullable=True),
                Column("fault", "string", "", "why the repetition failed; empty: it did not", nullable=True),
            ),
        ),
        Table(
            "throughput",
            "What the client counted in each interval.",
            (
                _RUN,
                _REPETITION,
                _at("begin of the interval"),
                _DURATION,
                Column("messages", "int64", "messages", "messages sent"),
                Column("deliveries", "int64", "deliveries", "messages delivered and checked"),
            ),
        ),
        Table(
            "latency",
            "Latency histograms, one for each interval and series; a row for each bucket that is not empty.",
            (
                _RUN,
                _REPETITION,
                Column("series", "string", "", _SERIES),
                _at("begin of the interval"),
                _DURATION,
                Column("bucket_low_us", "int64", "µs", "least value of the bucket"),
                Column("bucket_high_us", "int64", "µs", "greatest value of the bucket, inclusive"),
                Column("count", "int64", "deliveries", "deliveries in the bucket, at least 1"),
            ),
        ),
        Table(
            "samples",
            "Raw latencies of the series `intended`, when asked for; they then win over the histograms.",
            (
                _RUN,
                _REPETITION,
                _at("moment of the delivery"),
                Column("latency_us", "int32", "µs", "latency, rounded down; 2³¹−1 where it was more"),
            ),
        ),
        Table(
            "diag",
            "What DIAG answered, one row for each number.",
            (
                _RUN,
                _at("moment of the answer"),
                Column("query", "string", "", "DIAG's query, such as `network`"),
                _SHARD,
                Column("name", "string", "", "name of the number; of a single queue `QUEUE.NUMBER`: `/queue/a.size`"),
                Column(
                    "value", "float64", "see `unit`", "the number: a level, or a counter since the start of the broker"
                ),
                Column("unit", "string", "", "`count`, `bytes`, `us`, `ns`, `ms`; of yes and no (1 and 0) `count`"),
                Column(
                    "part_of",
                    "string",
                    "",
                    "`QUERY.NAME` of the total that this number is already counted in; empty: it is no part",
                    nullable=True,
                ),
            ),
        ),
        Table(
            "stages",
            "Timings of the broker's stages, one row for each bucket that is not empty.",
            (
                _RUN,
                _at("end of the interval"),
                _SHARD,
                Column("stage", "string", "", "`read`, `parse`, `route`, `encode`, `write`; none holds another"),
                Column("bucket_low_ns", "int64", "ns", "least value of the bucket"),
                Column("bucket_high_ns", "int64", "ns", "greatest value of the bucket, inclusive"),
                Column("count", "int64", "passes", "passes through the stage since the previous `at_us`, at least 1"),
            ),
        ),
        Table(
            "process",
            "CPU and memory of the processes, read at intervals.",
            (
                _RUN,
                _REPETITION,
                _at("moment of the reading"),
                Column("process", "string", "", "`target` or `generator`, with all their children"),
                Column("cpu_us", "int64", "µs", "user and system time since the process began"),
                Column("rss_bytes", "int64", "bytes", "resident memory", nullable=True),
                Column("threads", "int32", "threads", "threads", nullable=True),
            ),
        ),
    )
}
"""All tables, by name."""


def table_of(file_name: str) -> Table | None:
    """The table a file of a run's folder belongs to, or None for a file that is no part of the recording."""
    stem, dot, suffix = file_name.rpartition(".")
    if not dot or suffix != "parquet":
        return None
    name, dash, number = stem.partition("-")
    if dash and not number.isdigit():
        return None
    return TABLES.get(name)
