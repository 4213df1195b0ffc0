"""The batch job: turns all runs into tables. Spark does the work that grows with the samples, the driver the rest."""

from __future__ import annotations

import datetime
import functools
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark.cloudpickle
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stompica.analysis import changes, comparisons, costs, discovery, frames, latency, series, tables
from stompica.analysis.chartdata import ChartData, collect_chart_data
from stompica.analysis.discovery import Recordings
from stompica.analysis.session import AnalysisError
from stompica.analysis.tables import Row
from stompica.recording.run import RunInfo

LONG_RUN_S = 60
"""Minimum length of runs that are searched for change points."""

CHANGING = ("deliveries_per_s", "p99_us", "cpu_cores", "rss_bytes")

JOBS = 4
"""Spark jobs that run in parallel: each alone is too small to keep all cores busy."""


@dataclass
class Analysis:
    """The results of the job."""

    found: Recordings
    names: dict[int, str]
    """Display name of each run."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Rows of each table of RESULTS."""
    charts: ChartData = field(default_factory=ChartData)
    sweeps: list[dict[str, Any]] = field(default_factory=list)
    """Points and curve of each sweep."""
    took_s: float = 0.0
    """Duration of the job in seconds, without starting the session."""


def analyse(spark: SparkSession, source: str, into: Path, quarantine: str | None = None) -> Analysis:
    """Analyses all runs below `source` and writes every table into `into`/tables, as CSV and Parquet.

    `source` is a path, or a URI that both Spark and Arrow know. `into` is a folder that all workers can access. Bad
    files are moved to `quarantine` (by default `source`/_quarantine) and do not end the job. AnalysisError if there is
    no run or Spark fails.
    """
    began = time.monotonic()
    found = discovery.discover(source, quarantine)
    try:
        result = _analyse(spark, found, into)
    except (PySparkException, Py4JJavaError) as error:
        # A file with a valid footer may have damaged pages: check every page and run the job once more.
        moved = found.quarantined
        found = discovery.discover(source, quarantine, deep=True)
        if not found.quarantined:
            raise AnalysisError(f"Spark failed: {' '.join(str(error).split())[:500]}") from error
        found.quarantined = moved + found.quarantined
        result = _analyse(spark, found, into)
    for name in tables.RESULTS:
        tables.write(into / "tables", name, result.rows[name])
    result.took_s = time.monotonic() - began
    return result


def run_names(found: Recordings) -> dict[int, str]:
    """Display names of the runs: workload, transport, label or target; with the time if that is ambiguous."""

    def name(run: RunInfo) -> str:
        return f"{run.workload.name} {run.workload.transport} {run.label or run.target.name}"

    times = Counter(name(run) for run in found.runs.values())
    return {
        run_id: name(run) if times[name(run)] == 1 else f"{name(run)} {_moment(run)}"
        for run_id, run in found.runs.items()
    }


def _moment(run: RunInfo) -> str:
    return f"{datetime.datetime.fromtimestamp(run.started_at_us / 1e6, datetime.timezone.utc):%Y-%m-%d %H:%M:%S}"


def percentiles(spark: SparkSession, found: Recordings, runs: DataFrame) -> DataFrame:
    """Percentiles of each second, repetition and run."""
    # Planning for missing tables would cost time too.
    parts = []
    if found.files["samples"]:
        parts.append(latency.of_samples(frames.read(spark, "samples", found.files["samples"])))
    if found.files["latency"] or not parts:
        buckets = frames.read(spark, "latency", found.files["latency"])
        parts.append(latency.of_histograms(buckets, runs, found))
    return functools.reduce(DataFrame.unionByName, parts)


def percentile_rows(ranked: DataFrame) -> list[Row]:
    """The percentiles of repetitions and runs, as dictionaries without the run's name."""
    rows = _collect(ranked.where(F.col("second") < 0).drop("second"))
    return sorted(
        rows, key=lambda row: (row["run_id"], row["series"], row["repetition"] or 0, row["repetition"] is None)
    )


def _analyse(spark: SparkSession, found: Recordings, into: Path) -> Analysis:
    result = Analysis(found, run_names(found))
    runs = frames.runs(spark, found).cache()
    ranked = percentiles(spark, found, runs).persist()
    with ThreadPoolExecutor(JOBS) as jobs:
        later: dict[str, Future[Any]] = {
            "percentiles": jobs.submit(percentile_rows, ranked),
            "stages": jobs.submit(_stage_sums, spark, found),
            "seconds": jobs.submit(_write_seconds, found, ranked, runs, into),
            "minutes": jobs.submit(_write_minutes, spark, found, into),
        }
        repetitions: list[Row] = [*found.repetitions]
        # Done while the largest job still runs.
        _summaries(result, repetitions, later["percentiles"].result(), later["stages"].result())
        seconds = later["seconds"].result()
        shifts = jobs.submit(_change_rows, seconds, found, repetitions)
        charts = jobs.submit(collect_chart_data, seconds, runs, found)
        result.rows["changes"] = [{**row, "run": result.names[row["run_id"]]} for row in shifts.result()]
        result.charts = charts.result()
        later["minutes"].result()
    ranked.unpersist()
    runs.unpersist()
    return result


def _summaries(result: Analysis, repetitions: list[Row], percentiles: list[Row], stages: list[Row]) -> None:
    """Fills in all tables that are derived from the collected rows."""
    found, names, rows = result.found, result.names, result.rows
    runs = sorted(found.runs.values(), key=lambda run: (run.started_at_us, run.run_id))
    values = comparisons.repetition_values(repetitions, percentiles)
    rows["percentiles"] = [{**row, "run": names[row["run_id"]]} for row in percentiles]
    rows["stages"] = costs.stage_rows(stages, names)
    rows["bottlenecks"] = costs.bottlenecks(runs, names, values, rows["stages"])
    rows["comparisons"] = comparisons.compare(runs, names, values)
    rows["curves"], result.sweeps = costs.fitted(runs, values)
    rows["figures"] = [
        {"run_id": run.run_id, "run": names[run.run_id], "figure": figure, "value": value}
        for run in runs
        for figure, value in run.figures.items()
    ]
    rows["quarantine"] = [{"path": bad.path, "reason": bad.reason} for bad in found.quarantined]
    measured = Counter(row["run_id"] for row in repetitions)
    rows["runs"] = [_run_row(run, result, values, measured[run.run_id]) for run in runs]


def _run_row(run: RunInfo, result: Analysis, values: comparisons.Values, repetitions: int) -> Row:
    figures = costs.medians(run, values)
    peak = figures["peak_rss_bytes"]
    return {
        "run_id": run.run_id,
        "run": result.names[run.run_id],
        "campaign": run.campaign,
        "target": f"{run.target.name} {run.target.version}".strip(),
        "commit": run.target.commit,
        "workload": run.workload.name,
        "transport": run.workload.transport,
        "subscribers": run.workload.subscribers,
        "body_bytes": run.workload.body_bytes,
        "writers": run.writers,
        "repetitions": repetitions,
        "deliveries_per_s": figures["deliveries_per_s"],
        "cpu_us_per_delivery": figures["cpu_us_per_delivery"],
        "peak_rss_mib": peak / 2**20 if peak is not None else None,
        "generator_share": figures["generator_share"],
        "state": _state(run, result.found),
    }


def _state(run: RunInfo, found: Recordings) -> str:
    folder = found.folders[run.run_id]
    lost = [bad.path.rsplit("/", 1)[-1] for bad in found.quarantined if bad.path.startswith(f"{folder}/")]
    state = {"recording": "cut off", "failed": f"failed: {run.fault}"}.get(run.state, run.state)
    return f"{state}, without {', '.join(lost)}" if lost else state


def _collect(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]


def _stage_sums(spark: SparkSession, found: Recordings) -> list[Row]:
    if not found.files["stages"]:
        return []
    stages = frames.read(spark, "stages", found.files["stages"])
    # Sums of integers do not depend on the order.
    total = (F.sum(F.col("count") * (F.col("bucket_low_ns") + F.col("bucket_high_ns"))) / 2).alias("total_ns")
    return _collect(stages.groupBy("run_id", "stage").agg(F.sum("count").alias("passes"), total))


def _write_seconds(found: Recordings, ranked: DataFrame, runs: DataFrame, into: Path) -> DataFrame:
    throughput, process = (
        frames.read(runs.sparkSession, name, found.files[name]) for name in ("throughput", "process")
    )
    return _write_large(series.per_second(throughput, ranked, process, runs), into, "per_second")


def _write_minutes(spark: SparkSession, found: Recordings, into: Path) -> DataFrame:
    diag = frames.read(spark, "diag", found.files["diag"])
    return _write_large(series.per_minute(diag), into, "per_minute")


def _write_large(frame: DataFrame, into: Path, name: str) -> DataFrame:
    """Writes a table that may exceed the driver's memory as a folder of Parquet files, which it returns, and a CSV."""
    folder = (into / "tables" / f"{name}.parquet").absolute()
    frame.write.mode("overwrite").parquet(f"file://{folder}")
    tables.write_csv(folder)
    return frame.sparkSession.read.schema(frame.schema).parquet(f"file://{folder}")


def _change_rows(seconds: DataFrame, found: Recordings, repetitions: list[Row]) -> list[Row]:
    """Change points of the long runs. Without long runs no Python worker is started."""
    long = {row["run_id"] for row in repetitions if row["duration_us"] >= LONG_RUN_S * 1_000_000}
    known = {row["run_id"] for row in repetitions}
    long |= {run for run, info in found.runs.items() if run not in known and _length_s(info) >= LONG_RUN_S}
    if not long:
        return []
    number = sum(row["run_id"] in long for row in repetitions) or len(long)
    pyspark.cloudpickle.register_pickle_by_value(changes)  # type: ignore[no-untyped-call]
    search: Callable[[Any], Any] = changes.of_frame(CHANGING, comparisons.ALPHA / (number * len(CHANGING)))
    chosen = seconds.where(F.col("run_id").isin(sorted(long)))
    shifts = chosen.groupBy("run_id", "repetition").applyInPandas(search, changes.SCHEMA)
    return sorted(_collect(shifts), key=lambda row: (row["run_id"], row["repetition"], row["metric"], row["second"]))


def _length_s(run: RunInfo) -> float:
    """Duration of a run in seconds; infinite for a run without an end."""
    return float("inf") if run.ended_at_us is None else (run.ended_at_us - run.started_at_us) / 1e6
