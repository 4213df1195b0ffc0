"""Data of the charts over time: a bounded number of points, however much was recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stompica.analysis import frames, series
from stompica.analysis.discovery import Recordings
from stompica.analysis.tables import Row
from stompica.recording.run import RunInfo

RUNS_MAX = 12
"""Number of runs shown over time: the latest ones."""

POINTS_MAX = 400
"""Maximum number of points of one line."""

LEVELS_MAX = 6
"""DIAG numbers shown for one run: those that changed, the largest first."""

LEVEL_QUERIES = ("session", "stale", "memory", "queues", "ack", "store", "slow")
"""DIAG queries whose answers are levels, such as queue sizes, and not counters."""


@dataclass
class ChartData:
    """Points over time."""

    runs: list[RunInfo] = field(default_factory=list)
    seconds: list[Row] = field(default_factory=list)
    """Rows with `run_id, repetition, second` and the values of per_second."""
    levels: list[Row] = field(default_factory=list)
    """Rows with `run_id, query, name, unit, second, value`: DIAG's numbers on the same axis."""


def collect_chart_data(seconds: DataFrame, runs: DataFrame, found: Recordings) -> ChartData:
    """The latest runs over time, downsampled."""
    latest = sorted(found.runs.values(), key=lambda run: (run.started_at_us, run.run_id))[-RUNS_MAX:]
    ids = [run.run_id for run in latest]
    chosen = seconds.where(F.col("run_id").isin(ids))
    ends = [run.ended_at_us for run in latest]
    if None in ends:
        longest = chosen.agg(F.max("second")).collect()[0][0] or 0
    else:
        longest = max((run.ended_at_us or 0) - run.started_at_us for run in latest) // 1_000_000
    width = max(1, math.ceil((longest + 1) / POINTS_MAX))
    points = series.downsampled(chosen, F.lit(width)).orderBy("run_id", "repetition", "second").collect()
    files = found.files_of("diag", ids)
    levels = _levels(frames.read(runs.sparkSession, "diag", files), runs, width) if files else []
    return ChartData(latest, [row.asDict() for row in points], levels)


def _levels(diag: DataFrame, runs: DataFrame, width_s: int) -> list[Row]:
    keys = ["run_id", "query", "name", "unit"]
    second = F.floor((F.col("at_us") - F.col("started_at_us")) / (1_000_000 * width_s)) * width_s
    levels = diag.where(F.col("query").isin(*LEVEL_QUERIES)).join(F.broadcast(runs), "run_id")
    # A number reported by shards only is their sum; one reported for the whole broker already is that sum.
    by_shard = levels.groupBy(*keys, "shard", second.cast("int").alias("second")).agg(F.avg("value").alias("value"))
    whole = F.max(F.when(F.col("shard").isNull(), F.col("value")))
    points = by_shard.groupBy(*keys, "second").agg(F.coalesce(whole, F.sum("value")).alias("value"))
    peaks = points.groupBy(*keys).agg(F.max("value").alias("peak"), F.min("value").alias("least"))
    largest = Window.partitionBy("run_id").orderBy(F.desc("peak"), "query", "name", "unit")
    moved = peaks.where("peak > least").withColumn("place", F.row_number().over(largest))
    shown = moved.where(F.col("place") <= LEVELS_MAX).select(*keys)
    return [row.asDict() for row in points.join(shown, keys).orderBy(*keys, "second").collect()]
