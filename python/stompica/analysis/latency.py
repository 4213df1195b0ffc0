"""Exact percentiles, from raw integer µs or from merged histogram buckets, by the same method.

Spark adds up the counts of equal values, which is lossless and leaves few rows, however many were measured; their ranks
then give the percentiles. There is no sketch and no interpolation.
"""

from __future__ import annotations

import pyspark.cloudpickle
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from stompica.analysis import ranks
from stompica.analysis.discovery import Recordings

MERGE_ROWS = 2_000_000
"""Above this number of histogram rows in one run, equal buckets are merged first, to fit into a worker."""

BUNDLE_ROWS = 200_000
"""Histogram rows passed to a worker at once, from several runs: passing each run separately takes longer."""

PART_S = 900
"""Length, in seconds, of the time slices in which a run of more than MERGE_ROWS is passed to workers."""

_BUCKET = ("run_id", "repetition", "series", "bucket_low_us", "bucket_high_us")


def of_samples(samples: DataFrame) -> DataFrame:
    """Percentiles of each repetition and run from raw samples, with the columns of `ranks.SCHEMA`.

    Uses the rule of `ranks`, but no Python workers: there are so few rows that starting them would take longest.
    """
    counted = samples.groupBy("run_id", "repetition", "latency_us").agg(F.count("*").alias("count"))
    both = F.explode(F.array("repetition", F.lit(None))).alias("repetition")
    rows = counted.select("run_id", both, F.col("latency_us").cast("long").alias("value_us"), "count")
    ordered = Window.partitionBy("run_id", "repetition").orderBy("value_us")
    # The same order for both sums, so that rows are sorted once.
    passed = F.sum("count").over(ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    total = F.sum("count").over(ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    found = [
        F.min(F.when(F.col("passed") * whole >= F.col("total") * part, F.col("value_us"))).alias(name)
        for name, (part, whole) in ranks.QUANTILES.items()
    ]
    summed = rows.select("*", passed.alias("passed"), total.alias("total")).groupBy("run_id", "repetition")
    size = F.sum("count")
    mean = (F.sum(F.col("value_us") * F.col("count")) / size).alias("mean_us")
    figures = summed.agg(size.alias("count"), mean, *found, F.max("value_us").alias("max_us"))
    names = F.lit("intended").alias("series"), F.lit("samples").alias("source")
    second = F.lit(ranks.NO_SECOND).alias("second")
    return figures.select("run_id", "repetition", *names, second, *figures.columns[2:])


def of_histograms(latency: DataFrame, runs: DataFrame, found: Recordings) -> DataFrame:
    """Percentiles of each second, repetition and run from histograms, with the columns of `ranks.SCHEMA`.

    A run's raw samples, if any, replace its histograms of the series `intended`, but not for the seconds.
    """
    _send()
    starts = {run.run_id: run.started_at_us for run in found.runs.values()}
    rows = found.bucket_rows.values()
    if max(rows, default=0) <= MERGE_ROWS:
        bundle = F.pmod(F.hash("run_id"), F.lit(1 + sum(rows) // BUNDLE_ROWS))
        chosen = latency.select(*_BUCKET, "at_us", "count")
        return chosen.groupBy(bundle).applyInArrow(ranks.of_histograms(starts, found.sampled), ranks.SCHEMA)
    merged = latency.groupBy(*_BUCKET).agg(F.sum("count").alias("count"))
    only_totals = ranks.of_histograms(starts, found.sampled, seconds=False)
    totals = merged.groupBy("run_id").applyInArrow(only_totals, ranks.SCHEMA)
    only_seconds = ranks.of_histograms(starts, found.sampled, totals=False)
    # The same second as in `ranks`, so that none is split between two parts.
    second = F.greatest(F.floor((F.col("at_us") - F.col("started_at_us")) / 1_000_000), F.lit(0))
    part = F.floor(second / PART_S)
    parts = latency.join(F.broadcast(runs), "run_id").select(*_BUCKET, "at_us", "count", part.alias("part"))
    return totals.unionByName(parts.groupBy("run_id", "part").applyInArrow(only_seconds, ranks.SCHEMA))


def _send() -> None:
    pyspark.cloudpickle.register_pickle_by_value(ranks)  # type: ignore[no-untyped-call]
