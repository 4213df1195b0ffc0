"""Runs over time: per second, per minute, and downsampled for a chart."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SECOND_KEYS = ("run_id", "repetition", "second")
SECOND_VALUES = ("deliveries_per_s", "messages_per_s", "p50_us", "p99_us", "max_us", "cpu_cores", "rss_bytes")


def _second() -> Column:
    """Seconds since the run began, rounded down; the row must have `started_at_us` of its run."""
    whole = F.floor((F.col("at_us") - F.col("started_at_us")) / 1_000_000).cast("int")
    return F.greatest(whole, F.lit(0)).alias("second")


def per_second(throughput: DataFrame, ranked: DataFrame, process: DataFrame, runs: DataFrame) -> DataFrame:
    """Client counts and process readings, second by second; null for values that were not measured.

    `ranked` has the percentiles of `batch.percentiles`.
    """
    starts = F.broadcast(runs.select("run_id", "started_at_us"))

    def rate(column: str) -> Column:
        # Intervals of length 0 have no rate; a plain division would fail the job.
        return F.try_divide(F.sum(column) * 1e6, F.sum("duration_us")).alias(f"{column}_per_s")

    counted = throughput.join(starts, "run_id").groupBy("run_id", "repetition", _second())
    rates = counted.agg(rate("deliveries"), rate("messages"))
    delays = ranked.where(F.col("second") >= 0)
    return _outer_join([rates, delays, _processes(process.join(starts, "run_id"))])


def _processes(process: DataFrame) -> DataFrame:
    """Cores used between consecutive readings, and memory, of the target."""
    before = Window.partitionBy("run_id", "repetition").orderBy("at_us")
    used = F.col("cpu_us") - F.lag("cpu_us").over(before)
    elapsed = F.col("at_us") - F.lag("at_us").over(before)
    readings = process.where("process = 'target'").select("*", used.alias("used_us"), elapsed.alias("elapsed_us"))
    return readings.groupBy("run_id", "repetition", _second()).agg(
        F.try_divide(F.sum("used_us"), F.sum("elapsed_us")).alias("cpu_cores"), F.max("rss_bytes").alias("rss_bytes")
    )


def _outer_join(parts: list[DataFrame]) -> DataFrame:
    """An outer join of frames with unique seconds, with a single shuffle for all."""
    together: DataFrame | None = None
    for part in parts:
        shown = [name for name in SECOND_VALUES if name in part.columns]
        shown_part = part.select(*SECOND_KEYS, *shown)
        together = shown_part if together is None else together.unionByName(shown_part, allowMissingColumns=True)
    assert together is not None
    return together.groupBy(*SECOND_KEYS).agg(*[F.max(name).alias(name) for name in SECOND_VALUES])


def per_minute(diag: DataFrame, minute: Column | None = None) -> DataFrame:
    """DIAG's numbers, minute by minute: the same aggregates for a finished recording and for a live one.

    `minute` is the start of the minute in µs since 1970, by default that of `at_us`. `first` and `last` are by time, so
    that a counter's rate is (`last` - `first`) / (`last_at_us` - `first_at_us`).
    """
    if minute is None:
        minute = F.floor(F.col("at_us") / 60_000_000) * 60_000_000
    return diag.groupBy(minute.alias("minute_us"), "run_id", "query", "shard", "name", "unit").agg(
        F.count("*").alias("readings"),
        F.min("value").alias("least"),
        F.avg("value").alias("mean"),
        F.max("value").alias("most"),
        F.min_by("value", "at_us").alias("first"),
        F.max_by("value", "at_us").alias("last"),
        F.min("at_us").alias("first_at_us"),
        F.max("at_us").alias("last_at_us"),
    )


def downsampled(seconds: DataFrame, width_s: Column) -> DataFrame:
    """Reduces points for a chart: buckets of `width_s` seconds with mean rates and maximal latencies and memory."""
    bucket = (F.floor(F.col("second") / width_s) * width_s).cast("int").alias("second")
    worst = [F.max(name).alias(name) for name in ("p50_us", "p99_us", "max_us", "rss_bytes")]
    means = [F.avg(name).alias(name) for name in ("deliveries_per_s", "messages_per_s", "cpu_cores")]
    return seconds.groupBy("run_id", "repetition", bucket).agg(*means, *worst)
