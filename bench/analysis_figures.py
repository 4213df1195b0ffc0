"""Measures the analysis: its time, its driver's memory, and whether a cluster gives the same tables.

.venv/bin/python bench/analysis_figures.py [samples] [runs] [large] [cluster]

Makes synthetic runs (fixed seed) in a temporary folder and prints one line of JSON for each part: 20 million raw
samples; 1,000 runs without samples; 100 million samples and a run of ten hours, for the driver's memory; the same job
on a standalone master with two workers. Exit status 1 if a result is wrong or a table differs. Times are not checked;
`load` shows what else the machine was doing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pyspark

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.analysis import synthetic  # noqa: E402

from stompica.analysis import batch, discovery, frames  # noqa: E402
from stompica.analysis.ranks import QUANTILES  # noqa: E402
from stompica.analysis.session import session  # noqa: E402
from stompica.analysis.tables import RESULTS  # noqa: E402
from stompica.recording import Histogram, RunWriter  # noqa: E402

SAMPLES = 20_000_000
RUNS = 1_000
MASTER_TIMEOUT_S = 60.0


def show(part: str, **figures: Any) -> None:
    """Prints one line of results, with the load average of the last minute."""
    print(json.dumps({"part": part, **figures, "load": round(os.getloadavg()[0], 1)}), flush=True)


def peak_mib(pid: int | str) -> float:
    """Peak memory of a process."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return round(int(found[1]) / 1024, 1) if found else 0.0


def cpu_s(spark: Any) -> float:
    """CPU used by Spark's virtual machine and its Python workers, including workers that have ended."""
    fields = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1]
    return sum(map(int, fields.split()[11:15])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def driver_mib(spark: Any) -> dict[str, float]:
    """Peak memory of the driver's two processes: Python, and Spark's virtual machine with its local executors."""
    machine, python = peak_mib(spark.sparkContext._gateway.proc.pid), peak_mib("self")
    return {"driver_python_mib": python, "driver_jvm_mib": machine, "driver_mib": machine + python}


def samples(root: Path) -> bool:
    """Checks percentiles of raw samples against sorted values."""
    rng = np.random.default_rng(1)
    expected = {}
    for number in range(4):
        values = [rng.lognormal(5.5, 0.7, SAMPLES // 20).astype(np.int64) for _ in range(5)]
        run = synthetic.info(number)
        with RunWriter(root, run) as writer:
            for repetition, some in enumerate(values):
                at_us = run.started_at_us + np.sort(rng.integers(0, 1_000_000, len(some))) + repetition * 1_000_000
                writer.add("samples", {"repetition": repetition, "at_us": at_us, "latency_us": some})
        for repetition, some in [*enumerate(values), (None, np.concatenate(values))]:
            ordered = np.sort(some)
            ranks = {name: -(-len(some) * part // whole) - 1 for name, (part, whole) in QUANTILES.items()}
            expected[run.run_id, repetition] = {name: int(ordered[rank]) for name, rank in ranks.items()}
    size = sum(file.stat().st_size for file in root.rglob("*.parquet"))
    # Started only now, since the samples must not be in the driver's memory before.
    with session("local[2]") as spark:
        right = True
        for attempt in ("first", "second"):
            began, used = time.monotonic(), cpu_s(spark)
            found = discovery.discover(str(root))
            ranked = batch.percentiles(spark, found, frames.runs(spark, found))
            rows = batch.percentile_rows(ranked)
            took = time.monotonic() - began
            got = {(row["run_id"], row["repetition"]): {name: row[name] for name in QUANTILES} for row in rows}
            right = right and got == expected
            cost = {"job_s": round(took, 2), "cpu_s": round(cpu_s(spark) - used, 2)}
            show("samples", attempt=attempt, samples=SAMPLES, mib=size >> 20, **cost, exact=right)
        show("samples", **driver_mib(spark))
    return right


def runs(root: Path) -> bool:
    """All tables of many runs, in campaigns of four; each run has five repetitions with a histogram each."""
    rng = np.random.default_rng(2)
    pool = []
    for _ in range(20):
        histogram = Histogram()
        histogram.record_all(rng.lognormal(5.3, 0.4, 1000).astype(int).tolist())
        pool.append(histogram)
    for number in range(RUNS):
        work = synthetic.workload(name=("fanout-75", "mux-75", "headline")[number // 4 % 3])
        run = synthetic.info(number, campaign=f"c{number // 4}", label="ABCD"[number % 4], workload=work)
        with RunWriter(root, run) as writer:
            for repetition in range(5):
                begin = {"repetition": repetition, "at_us": run.started_at_us + repetition * 2_000_000}
                counts = {
                    "duration_us": 1_000_000,
                    "messages": 13_334,
                    "deliveries": int(rng.integers(900_000, 1_100_000)),
                }
                cpu = {"target_cpu_us": int(rng.integers(45_000, 55_000)), "generator_cpu_us": 500_000}
                writer.add("repetitions", {**begin, **counts, **cpu, "peak_rss_bytes": 20 << 20})
                writer.add("throughput", {**begin, **counts})
                writer.latency(repetition, "intended", begin["at_us"], 1_000_000, pool[int(rng.integers(20))])
    with session("local[2]") as spark, tempfile.TemporaryDirectory() as into:
        for attempt in ("first", "second"):
            used = cpu_s(spark)
            result = batch.analyse(spark, str(root), Path(into))
            cost = {"job_s": round(result.took_s, 2), "cpu_s": round(cpu_s(spark) - used, 2)}
            show("runs", attempt=attempt, runs=len(result.rows["runs"]), **cost)
        show("runs", comparisons=len(result.rows["comparisons"]), **driver_mib(spark))
        return len(result.rows["runs"]) == RUNS


def large(root: Path) -> bool:
    """All tables of 100 million samples in ten runs, and of a run with more histogram rows than a worker gets at once.

    Each second of the long run has k + 1 deliveries of 100 + k µs, for k from 0 to 99, so its percentiles are known.
    """
    values = np.random.default_rng(4).lognormal(5.5, 0.7, SAMPLES // 10).astype(np.int64)
    for number in range(10):
        run = synthetic.info(number)
        with RunWriter(root, run) as writer:
            for repetition in range(5):
                at_us = run.started_at_us + np.arange(len(values)) // 2 + repetition * 1_000_000
                columns = {"repetition": repetition, "at_us": at_us, "latency_us": values * (10 + number) // 10}
                writer.add("samples", columns)
    run, width, at_once = synthetic.info(30), 100, 1000
    with RunWriter(root, run) as writer:
        for second in range(0, 36_000, at_once):
            at_us = run.started_at_us + np.repeat(np.arange(second, second + at_once), width) * 1_000_000
            bounds = np.tile(np.arange(100, 100 + width), at_once)
            head = {"repetition": 0, "series": "intended", "at_us": at_us, "duration_us": 1_000_000}
            counts = np.tile(np.arange(1, 1 + width), at_once)
            writer.add("latency", {**head, "bucket_low_us": bounds, "bucket_high_us": bounds, "count": counts})
    with session("local[2]") as spark, tempfile.TemporaryDirectory() as into:
        result = batch.analyse(spark, str(root), Path(into))
        rows = [row for row in result.rows["percentiles"] if row["repetition"] is None]
        (long,) = [row for row in rows if row["run_id"] == run.run_id]
        exact = (long["p50_us"], long["p90_us"], long["p99_us"]) == (170, 194, 199)
        exact = exact and sum(row["count"] for row in rows) == 5 * SAMPLES + 36_000 * 5050
        show("large", samples=5 * SAMPLES, job_s=round(result.took_s, 2), exact=exact, **driver_mib(spark))
    return exact


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master on loopback with two workers of one core each; yields its address."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, kind: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(spark_class), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment))
        return log

    def wait(log: Path, pattern: str) -> str:
        deadline = time.monotonic() + MASTER_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(encoding="utf-8"))
            if found:
                return found[0]
            time.sleep(0.2)
        raise TimeoutError(f"{log.name} did not log {pattern}: {log.read_text(encoding='utf-8')[-2000:]}")

    try:
        address = wait(
            start("master", "master.Master", "--port", "0", "--webui-port", "0"), r"spark://127\.0\.0\.1:\d+"
        )
        for name in ("worker-1", "worker-2"):
            work = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / name)]
            wait(start(name, "worker.Worker", *work, address), "Successfully registered with master")
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def same_tables(root: Path) -> bool:
    """Compares every table of the same runs, computed in this process and on a cluster."""
    rng = np.random.default_rng(3)
    synthetic.turns(root, 1, [synthetic.Shape(), synthetic.Shape(cpu_us=0.06)])
    synthetic.sampled(root, 2, [rng.lognormal(5, 1, 100_000).astype(np.int64) for _ in range(2)])
    synthetic.long_run(root, 3, np.r_[np.full(100, 1e6), np.full(100, 7e5)], rss_bytes=np.arange(200) << 16)
    with RunWriter(root, synthetic.info(4)) as writer:
        synthetic.diag_rows(writer, range(200))
        synthetic.stages(writer, {"read": 100, "write": 900})
    with tempfile.TemporaryDirectory() as folder:
        local, spread = Path(folder, "local"), Path(folder, "cluster")
        with session("local[2]") as spark:
            batch.analyse(spark, str(root), local)
        on_cluster = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.driver.memory": "640m"}
        with cluster(Path(folder)) as master, session(master, on_cluster) as spark:
            result = batch.analyse(spark, str(root), spread)
            show("cluster", workers=2, job_s=round(result.took_s, 2))
        differ = [name for name in (*RESULTS, "per_second", "per_minute") if _rows(local, name) != _rows(spread, name)]
    show("cluster", tables=len(RESULTS) + 2, differ=differ)
    return not differ


def _rows(into: Path, name: str) -> list[str]:
    rows = pq.read_table(into / "tables" / f"{name}.parquet").to_pylist()
    # Large tables have the order of Spark's partitions.
    shown = [repr(row) for row in rows]
    return sorted(shown) if name.startswith("per_") else shown


def main() -> int:
    parts = {"samples": samples, "runs": runs, "large": large, "cluster": same_tables}
    wrong = []
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as root:
            if not parts[name](Path(root)):
                wrong.append(name)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
