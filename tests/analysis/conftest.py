"""One Spark session on two cores for all tests, and one analysis of synthetic runs shared by several tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from stompica.analysis.batch import Analysis, analyse
from stompica.analysis.session import session
from stompica.recording import RunInfo, RunWriter, Target
from tests.analysis import synthetic
from tests.analysis.synthetic import Ints, Shape


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests, because Spark takes seconds to start."""
    with session("local[2]") as spark:
        yield spark


@dataclass
class Planted:
    """Synthetic runs, the planted effects, and the results of the analysis."""

    source: Path
    into: Path
    analysis: Analysis
    regressed: RunInfo
    improved: RunInfo
    peer: RunInfo
    sampled: RunInfo
    latencies: list[Ints]
    shifted: RunInfo
    live: RunInfo
    staged: RunInfo


@pytest.fixture(scope="session")
def planted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """All effects that the analysis must find, in one folder, analysed once."""
    source, into = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(61613)
    variants = synthetic.turns(source, 1, [Shape(), Shape(cpu_us=0.056), Shape(deliveries_per_s=1_150_000)], seed=3)
    same = synthetic.turns(source, 2, [Shape(), Shape()], seed=4, workload=synthetic.workload(name="mux-75"))
    slow = synthetic.info(2, campaign="c2", label="peer", target=Target("rabbitmq", "3.10"), workload=same[0].workload)
    slow = dataclasses.replace(slow, run_id=slow.run_id + 9)
    with RunWriter(source, slow) as writer:
        synthetic.repetitions(writer, Shape(deliveries_per_s=60_000, cpu_us=29.0), 10, rng)
    latencies = [rng.lognormal(5.3, 0.8, size).astype(np.int64) for size in (20_000, 1, 7_777)]
    sampled = synthetic.sampled(source, 3, latencies)
    deliveries = 1e6 * np.exp(rng.normal(0, 0.05, 300))
    deliveries[100:] *= 0.8
    deliveries[220:] *= 1.5
    p99_us = 500 * np.exp(rng.normal(0, 0.1, 300))
    p99_us[150:] *= 2
    rss = np.where(np.arange(300) < 250, 20 * 2**20, 60 * 2**20) + rng.integers(0, 2**18, 300)
    shifted = synthetic.long_run(source, 4, deliveries, p99_us=p99_us, rss_bytes=rss)
    live = synthetic.info(5, kind="live", workload=synthetic.workload(name="production"))
    with RunWriter(source, live) as writer:
        synthetic.diag_rows(writer, range(300))
    for place, body in enumerate((117, 1024, 16384, 65536)):
        run = synthetic.info(10 + place, workload=synthetic.workload(name="bodies", transport="ws", body_bytes=body))
        with RunWriter(source, run) as writer:
            synthetic.repetitions(writer, Shape(cpu_us=0.04 + 2e-4 * body), 5, rng)
    staged = synthetic.info(20, workload=synthetic.workload(name="headline"))
    with RunWriter(source, staged) as writer:
        synthetic.repetitions(writer, Shape(), 5, rng)
        synthetic.stages(writer, {"read": 100, "parse": 40, "route": 30, "encode": 60, "write": 900})
    analysis = analyse(spark, str(source), into)
    return Planted(source, into, analysis, variants[1], variants[2], slow, sampled, latencies, shifted, live, staged)
