"""The batch job finds the planted effects and no others."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from stompica.analysis import batch, charts, discovery, frames, latency, ranks, series
from stompica.analysis.batch import Analysis
from stompica.analysis.chartdata import collect_chart_data
from stompica.analysis.ranks import QUANTILES
from stompica.analysis.tables import RESULTS, Row
from stompica.recording import Bucket, Histogram, RunInfo, RunWriter, quantile, read_table
from tests.analysis import synthetic
from tests.analysis.conftest import Planted
from tests.analysis.synthetic import Ints

pytestmark = pytest.mark.timeout(400)


def exact(values: Ints, fraction: tuple[int, int]) -> int:
    """The order statistic, found by sorting."""
    part, whole = fraction
    ordered = np.sort(values)
    return int(ordered[-(-len(ordered) * part // whole) - 1])


def rows(analysis: Analysis, table: str, run: RunInfo, **values: object) -> list[Row]:
    """Rows of one run with these values."""
    found = [row for row in analysis.rows[table] if row["run_id"] == run.run_id]
    return [row for row in found if all(row[name] == value for name, value in values.items())]


def verdicts(analysis: Analysis, run: RunInfo) -> dict[str, str]:
    """The verdict on each metric of a run."""
    return {row["metric"]: row["verdict"] for row in rows(analysis, "comparisons", run) if row["kind"] != "earlier"}


@pytest.mark.parametrize("repetition", [0, 1, 2, None])
def test_percentiles_of_raw_samples_are_the_order_statistics(planted: Planted, repetition: int | None) -> None:
    values = np.concatenate(planted.latencies) if repetition is None else planted.latencies[repetition]
    (row,) = rows(planted.analysis, "percentiles", planted.sampled, repetition=repetition)
    assert row["source"] == "samples" and row["count"] == len(values)
    assert {name: row[name] for name in QUANTILES} == {name: exact(values, of) for name, of in QUANTILES.items()}
    assert row["max_us"] == values.max()
    assert row["mean_us"] == pytest.approx(values.mean(), rel=1e-12)


@pytest.mark.parametrize("repetition", [0, 9, None])
def test_percentiles_of_histograms_are_those_of_the_merged_buckets(planted: Planted, repetition: int | None) -> None:
    (folder,) = planted.source.glob(f"*-{planted.regressed.run_id}")
    stored = read_table(folder, "latency").to_pylist()
    chosen = [row for row in stored if repetition in (None, row["repetition"])]
    buckets = [Bucket(row["bucket_low_us"], row["bucket_high_us"], row["count"]) for row in chosen]
    (row,) = rows(planted.analysis, "percentiles", planted.regressed, repetition=repetition)
    assert row["source"] == "histogram"
    for name, (part, whole) in QUANTILES.items():
        assert row[name] == quantile(buckets, part / whole), name


def test_long_runs_give_the_same_percentiles_in_parts(
    planted: Planted, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For histograms that would not fit into a worker, buckets are merged first and seconds processed in parts."""
    found = discovery.discover(str(planted.source))
    runs = frames.runs(spark, found)
    whole = Counter(batch.percentiles(spark, found, runs).collect())
    monkeypatch.setattr(latency, "MERGE_ROWS", max(found.bucket_rows.values()) - 1)
    monkeypatch.setattr(latency, "PART_S", 7)
    sent: list[dict[str, bool]] = []
    search: Callable[..., Any] = ranks.of_histograms

    def spied(*arguments: Any, **wanted: bool) -> Any:
        sent.append(wanted)
        return search(*arguments, **wanted)

    monkeypatch.setattr(ranks, "of_histograms", spied)
    assert Counter(batch.percentiles(spark, found, runs).collect()) == whole
    assert sent == [{"seconds": False}, {"totals": False}]


def test_a_planted_regression_is_found_and_nothing_else(planted: Planted) -> None:
    expected = dict.fromkeys(("deliveries_per_s", "p50_us", "p99_us", "peak_rss_bytes"), "no difference shown")
    assert verdicts(planted.analysis, planted.regressed) == {**expected, "cpu_us_per_delivery": "worse"}
    (row,) = rows(planted.analysis, "comparisons", planted.regressed, metric="cpu_us_per_delivery")
    assert row["kind"] == "variant" and row["pairs"] == 10
    assert row["ratio_low"] < 0.056 / 0.05 < row["ratio_high"]


def test_a_planted_improvement_is_found(planted: Planted) -> None:
    assert verdicts(planted.analysis, planted.improved)["deliveries_per_s"] == "better"


def test_a_peer_is_compared_but_is_not_a_regression(planted: Planted) -> None:
    (row,) = rows(planted.analysis, "comparisons", planted.peer, metric="cpu_us_per_delivery", kind="peer")
    assert row["verdict"] == "worse" and row["ratio"] == pytest.approx(29 / 0.05, rel=0.2)


def test_planted_change_points_are_found_and_no_others(planted: Planted) -> None:
    planted_at = {"deliveries_per_s": [100, 220], "p99_us": [150], "rss_bytes": [250]}
    found: dict[str, list[int]] = {}
    for row in rows(planted.analysis, "changes", planted.shifted):
        found.setdefault(row["metric"], []).append(row["second"])
    assert found.keys() == planted_at.keys()
    for metric, seconds in planted_at.items():
        assert len(found[metric]) == len(seconds), metric
        assert np.abs(np.subtract(found[metric], seconds)).max() <= 3, metric
    (first, _) = rows(planted.analysis, "changes", planted.shifted, metric="deliveries_per_s")
    assert first["ratio"] == pytest.approx(0.8, rel=0.05)


def test_a_sweep_is_fitted_by_the_curve_that_generated_it(planted: Planted) -> None:
    (row,) = [row for row in planted.analysis.rows["curves"] if row["sweep"] == "body_bytes"]
    assert (row["points"], row["from_x"], row["to_x"]) == (4, 117, 65536)
    assert row["curve"].endswith("·x")
    assert row["b"] == pytest.approx(2e-4, rel=0.15)


def test_the_slowest_stage_is_the_bottleneck(planted: Planted) -> None:
    (row,) = rows(planted.analysis, "bottlenecks", planted.staged)
    assert row["bottleneck"] == "write"
    assert row["share"] == pytest.approx(900 / 1130, rel=0.03)
    (stage,) = rows(planted.analysis, "stages", planted.staged, stage="parse")
    assert stage["passes"] == 2000 and stage["mean_ns"] == pytest.approx(40, rel=0.05)


def test_seconds_contain_rates_latencies_cpu_and_memory(planted: Planted, spark: SparkSession) -> None:
    table = spark.read.parquet(f"file://{planted.into}/tables/per_second.parquet")
    found = {row["second"]: row for row in table.where(table.run_id == planted.shifted.run_id).collect()}
    assert sorted(found) == list(range(300))
    (folder,) = planted.source.glob(f"*-{planted.shifted.run_id}")
    counted = read_table(folder, "throughput").column("deliveries").to_pylist()
    assert [found[second]["deliveries_per_s"] for second in range(300)] == counted
    assert found[7]["p50_us"] == 100 and found[7]["p99_us"] == found[7]["max_us"] > 300
    assert found[7]["cpu_cores"] == pytest.approx(0.9)
    assert found[299]["rss_bytes"] >= 60 * 2**20


def test_a_total_of_the_broker_is_not_added_to_those_of_its_shards(spark: SparkSession, tmp_path: Path) -> None:
    with RunWriter(tmp_path, synthetic.info(1, kind="live")) as writer:
        for second in range(20):
            at_us = writer.info.started_at_us + second * 1_000_000
            for shard, size in ((None, 30 + second), (0, 10 + second), (1, 20)):
                writer.diag(at_us, "queues", {"both": size}, shard=shard)
                if shard is not None:
                    writer.diag(at_us, "queues", {"shards": size}, shard=shard)
    found = discovery.discover(str(tmp_path))
    runs = frames.runs(spark, found)
    seconds = series.per_second(
        *(
            frames.read(spark, "throughput", []),
            batch.percentiles(spark, found, runs),
            frames.read(spark, "process", []),
        ),
        runs,
    )
    levels = collect_chart_data(seconds, runs, found).levels
    for name in ("both", "shards"):
        points = {row["second"]: row["value"] for row in levels if row["name"] == name}
        assert points == {second: 30.0 + second for second in range(20)}, name


def test_intervals_of_length_zero_do_not_fail_the_job(spark: SparkSession, tmp_path: Path) -> None:
    with RunWriter(tmp_path / "runs", synthetic.info(1)) as writer:
        at_us = writer.info.started_at_us
        counted = {"repetition": 0, "at_us": at_us, "duration_us": 0, "messages": 1, "deliveries": 75}
        writer.add("throughput", counted)
        writer.add("repetitions", counted)
        for _ in range(2):
            writer.add("process", {"repetition": 0, "at_us": at_us, "process": "target", "cpu_us": 5})
        bounds = {"bucket_low_ns": 1, "bucket_high_ns": 1}
        writer.add("stages", {"at_us": at_us, "shard": 0, "stage": "read", **bounds, "count": 0})
    found = batch.analyse(spark, str(tmp_path / "runs"), tmp_path / "into")
    (stage,) = found.rows["stages"]
    assert (stage["passes"], stage["mean_ns"]) == (0, None)
    (second,) = pq.read_table(tmp_path / "into" / "tables" / "per_second.parquet").to_pylist()
    assert (second["deliveries_per_s"], second["cpu_cores"]) == (None, None)


def test_runs_with_a_window_show_their_latency_and_their_figures(spark: SparkSession, tmp_path: Path) -> None:
    figures = {"user_bytes_per_connection": 710.5, "least_by_most_share": 1.0}
    with RunWriter(tmp_path / "runs", synthetic.info(1, figures=figures)) as writer:
        at_us = writer.info.started_at_us
        histogram = Histogram()
        histogram.record_all([100, 200, 300])
        writer.latency(0, "window", at_us + 2_000_000, 500_000, histogram)
        writer.latency(0, "write", at_us + 3_000_000, 500_000, histogram)
    found = batch.analyse(spark, str(tmp_path / "runs"), tmp_path / "into")
    whole = {row["series"]: row["p50_us"] for row in found.rows["percentiles"] if row["repetition"] is None}
    assert whole == {"window": 200, "write": 200}
    (second,) = pq.read_table(tmp_path / "into" / "tables" / "per_second.parquet").to_pylist()
    assert (second["second"], second["p50_us"], second["max_us"]) == (2, 200, 301)
    assert {row["figure"]: row["value"] for row in found.rows["figures"]} == figures
    assert charts.latency_curve(found.rows["percentiles"], list(found.found.runs.values())), "there is a curve to draw"


def test_minutes_contain_the_numbers_of_diag(planted: Planted, spark: SparkSession) -> None:
    table = spark.read.parquet(f"file://{planted.into}/tables/per_minute.parquet")
    chosen = table.where(table.run_id == planted.live.run_id).where("name = 'in.bytes' and shard = 1")
    found = sorted(chosen.collect(), key=lambda row: row["minute_us"])
    assert sum(row["readings"] for row in found) == 300
    assert [row["last"] - row["first"] for row in found][1:-1] == [59_000.0] * (len(found) - 2)
    assert set(table.columns) == set(series.per_minute(table.selectExpr("*", "0D as value", "0L as at_us")).columns)


@pytest.mark.parametrize("name", RESULTS)
def test_every_table_is_written_as_csv_and_as_parquet(planted: Planted, name: str) -> None:
    stored = pq.read_table(planted.into / "tables" / f"{name}.parquet")
    assert stored.column_names == list(RESULTS[name].names)
    assert stored.num_rows == len(planted.analysis.rows[name])
    with (planted.into / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.reader(file))
    assert written[0] == stored.column_names and len(written) == stored.num_rows + 1
