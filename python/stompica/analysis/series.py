"""Runs over time: per second, per minute, and thinned out for a chart."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SECOND_KEYS = ("run_id", "repetition", "second")
SECOND_VALUES = ("deliveries_per_s", "messages_per_s", "p50_us", "p99_us", "max_us", "cpu_cores", "rss_bytes")


def _second() -> Column:
    """Seconds since the run began, rounded down; the row has `started_at_us` of its run."""
    whole = F.floor((F.col("at_us") - F.col("started_at_us")) / 1_000_000).cast("int")
    return F.greatest(whole, F.lit(0)).alias("second")


def per_second(throughput: DataFrame, ranked: DataFrame, process: DataFrame, runs: DataFrame) -> DataFrame:
    """What the client and the process readings say, second by second; empty where nobody measured.

    `ranked` are the percentiles of `latency.percentiles`.
    """
    starts = F.broadcast(runs.select("run_id", "started_at_us"))

    def rate(column: str) -> Column:
        # Intervals without length have no rate; a plain division would end the job.
        return F.try_divide(F.sum(column) * 1e6, F.sum("duration_us")).alias(f"{column}_per_s")

    counted = throughput.join(starts, "run_id").groupBy("run_id", "repetition", _second())
    rates = counted.agg(rate("deliveries"), rate("messages"))
    delays = ranked.where(F.col("second") >= 0)
    return _side_by_side([rates, delays, _processes(process.join(starts, "run_id"))])


def _processes(process: DataFrame) -> DataFrame:
    """Cores used between one reading and the next, and memory, of the target."""
    before = Window.partitionBy("run_id", "repetition").orderBy("at_us")
    used = F.col("cpu_us") - F.lag("cpu_us").over(before)
    elapsed = F.col("at_us") - F.lag("at_us").over(before)
    readings = process.where("process = 'target'").select("*", used.alias("used_us"), elapsed.alias("elapsed_us"))
    return readings.groupBy("run_id", "repetition", _second()).agg(
        F.try_divide(F.sum("used_us"), F.sum("elapsed_us")).alias("cpu_cores"), F.max("rss_bytes").alias("rss_bytes")
    )


def _side_by_side(parts: list[DataFrame]) -> DataFrame:
    """An outer join of frames that have each second once, with one shuffle for all."""
    together: DataFrame | None = None
    for part in parts:
        shown = [name for name in SECOND_VALUES if name in part.columns]
        shown_part = part.select(*SECOND_KEYS, *shown)
        together = shown_part if together is None else together.unionByName(shown_part, allowMissingColumns=True)
    assert together is not None
    return together.groupBy(*SECOND_KEYS).agg(*[F.max(name).alias(name) for name in SECOND_VALUES])


def per_minute(diag: DataFrame, minute: Column | None = None) -> DataFrame:
    """What DIAG said, minute by minute: the same aggregates for a finished recording and for one that grows.

    `minute` is the beginning of the minute in µs since 1970, by default that of `at_us`. `first` and `last` are by
    time, so that a counter's rate is (`last` - `first`) / (`last_at_us` - `first_at_us`).
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


def thinned(seconds: DataFrame, width_s: Column) -> DataFrame:
    """Fewer points for a chart: buckets of `width_s` seconds, means of rates, worst of latencies and memory."""
    bucket = (F.floor(F.col("second") / width_s) * width_s).cast("int").alias("second")
    worst = [F.max(name).alias(name) for name in ("p50_us", "p99_us", "max_us", "rss_bytes")]
    means = [F.avg(name).alias(name) for name in ("deliveries_per_s", "messages_per_s", "cpu_cores")]
    return seconds.groupBy("run_id", "repetition", bucket).agg(*means, *worst)
