"""Exact percentiles, from raw integer µs or from merged histogram buckets, by one and the same way.

Spark adds up counts of equal values, which loses nothing and leaves few rows, however many were measured; `ranks` then
finds the percentiles of each run. No sketch, no interpolation.
"""

from __future__ import annotations

import pyspark.cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stompica.analysis import ranks

_KEYS = ("run_id", "repetition", "series", "source", "second", "in_total", "low_us", "value_us")


def percentiles(latency: DataFrame, samples: DataFrame, runs: DataFrame, *, merge: bool) -> DataFrame:
    """Percentiles of each run, repetition and second: the columns of `ranks.SCHEMA`.

    Where a run has raw samples, they replace its histograms of the series `intended`, but not for the seconds. `merge`
    adds up equal buckets first: worth it for long runs, whose histograms would not fit into a worker.
    """
    pyspark.cloudpickle.register_pickle_by_value(ranks)  # type: ignore[no-untyped-call]
    raw = samples.groupBy("run_id", "repetition", F.col("latency_us").cast("long").alias("value_us")).agg(
        F.count("*").alias("count")
    )
    buckets = _buckets(latency, runs)
    if merge:
        seconds = buckets.where("second >= 0 and series = 'intended'").withColumn("in_total", F.lit(False))
        totals = buckets.where("in_total").withColumn("second", F.lit(ranks.NO_SECOND))
        merged = totals.groupBy(*_KEYS).agg(F.sum("count").alias("count"))
        hours = F.floor(F.col("second") / 900)
        by_second = seconds.withColumn("hour", hours).groupBy("run_id", "hour").applyInArrow(ranks.of_run, ranks.SCHEMA)
        return by_second.unionByName(_ranked(_counted(raw).unionByName(merged)))
    return _ranked(_counted(raw).unionByName(buckets))


def _ranked(counted: DataFrame) -> DataFrame:
    return counted.groupBy("run_id").applyInArrow(ranks.of_run, ranks.SCHEMA)


def _counted(raw: DataFrame) -> DataFrame:
    """Counts of raw values as buckets of width one, without their seconds."""
    return raw.select(
        "run_id",
        "repetition",
        F.lit("intended").alias("series"),
        F.lit("samples").alias("source"),
        F.lit(ranks.NO_SECOND).alias("second"),
        F.lit(True).alias("in_total"),
        F.col("value_us").alias("low_us"),
        "value_us",
        "count",
    )


def _buckets(latency: DataFrame, runs: DataFrame) -> DataFrame:
    second = F.floor((F.col("at_us") - F.col("started_at_us")) / 1_000_000).cast("int")
    return latency.join(F.broadcast(runs), "run_id").select(
        "run_id",
        "repetition",
        "series",
        F.lit("histogram").alias("source"),
        F.greatest(second, F.lit(0)).alias("second"),
        (~F.col("has_samples") | (F.col("series") != "intended")).alias("in_total"),
        F.col("bucket_low_us").alias("low_us"),
        F.col("bucket_high_us").alias("value_us"),
        "count",
    )
