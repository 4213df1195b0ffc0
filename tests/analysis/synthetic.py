"""Synthetic runs: generated from a seed, with planted effects that the analysis must find."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stompica.recording import Histogram, Machine, RunInfo, RunWriter, Target, Workload

EPOCH_US = 1_790_000_000_000_000
"""Reference start of the synthetic runs, µs since 1970."""

Ints = npt.NDArray[np.int64]


def info(number: int, **changes: Any) -> RunInfo:
    """run.json of synthetic run `number`; runs start one hour apart."""
    started = EPOCH_US + number * 3_600_000_000
    run = RunInfo(
        run_id=started // 1000,
        target=Target("stompica", "0.1.0", "abcdef012345"),
        workload=Workload("fanout-75", "tcp", 1, 75, 117),
        machine=Machine(2, "synthetic", "none", 2**33),
        started_at_us=started,
        ended_at_us=started + 60_000_000,
        writers=2,
        versions={"python": "3"},
    )
    return dataclasses.replace(run, **changes)


def workload(**changes: Any) -> Workload:
    """The workload of `info`, with changes."""
    return dataclasses.replace(info(0).workload, **changes)


@dataclasses.dataclass
class Shape:
    """Distribution of the values of a synthetic run's repetitions."""

    deliveries_per_s: float = 1_000_000.0
    cpu_us: float = 0.05
    """CPU for each delivery, µs."""
    p50_us: float = 200.0
    rss_bytes: int = 20 * 2**20
    generator_share: float = 0.5
    noise: float = 0.03
    """Standard deviation of the logarithm between repetitions."""
    drift: float = 0.1
    """The same for the machine's speed, which is common to runs that take turns."""


def repetitions(
    writer: RunWriter, shape: Shape, count: int, rng: np.random.Generator, slowdowns: Sequence[float] | None = None
) -> None:
    """Writes rows of `repetitions`, one second each, with a latency histogram of 1,000 deliveries."""
    slowdowns = [1.0] * count if slowdowns is None else slowdowns
    for number, slowdown in zip(range(count), slowdowns, strict=True):
        at_us = writer.info.started_at_us + number * 2_000_000

        def noisy(value: float, slowdown: float = slowdown) -> float:
            return value * slowdown * float(np.exp(rng.normal(0, shape.noise)))

        deliveries = round(noisy(shape.deliveries_per_s, 1 / slowdown))
        writer.add(
            "repetitions",
            {
                "repetition": number,
                "at_us": at_us,
                "duration_us": 1_000_000,
                "messages": deliveries // 75,
                "deliveries": deliveries,
                "target_cpu_us": max(1, round(noisy(shape.cpu_us) * deliveries)),
                "generator_cpu_us": round(shape.generator_share * 1_000_000),
                "peak_rss_bytes": round(noisy(shape.rss_bytes, 1.0)),
            },
        )
        histogram = Histogram()
        histogram.record_all(rng.lognormal(np.log(noisy(shape.p50_us)), 0.4, 1000).astype(np.int64).tolist())
        writer.latency(number, "intended", at_us, 1_000_000, histogram)
        counted = {"messages": deliveries // 75, "deliveries": deliveries}
        writer.add("throughput", {"repetition": number, "at_us": at_us, "duration_us": 1_000_000, **counted})


def turns(
    root: Path, number: int, shapes: Sequence[Shape], *, pairs: int = 10, seed: int = 1, **changes: Any
) -> list[RunInfo]:
    """A campaign of runs that took turns, labelled A, B, …; the machine's slowdown is the same within a turn."""
    rng = np.random.default_rng([seed, number])
    drift = shapes[0].drift
    slowdowns = [float(np.exp(rng.normal(0, drift))) for _ in range(pairs)]
    made = []
    for place, shape in enumerate(shapes):
        run = info(number, campaign=f"c{number}", label="ABCDEFGH"[place], **changes)
        run = dataclasses.replace(run, run_id=run.run_id + place, started_at_us=run.started_at_us + place)
        with RunWriter(root, run) as writer:
            repetitions(writer, shape, pairs, rng, slowdowns)
        made.append(run)
    return made


def sampled(root: Path, number: int, latencies: Sequence[Ints], **changes: Any) -> RunInfo:
    """A run with raw samples, one array for each repetition, and the corresponding histograms."""
    run = info(number, **changes)
    with RunWriter(root, run) as writer:
        for repetition, values in enumerate(latencies):
            at_us = run.started_at_us + repetition * 1_000_000
            when = at_us + np.arange(len(values)) * 1_000_000 // max(len(values), 1)
            writer.add("samples", {"repetition": repetition, "at_us": when, "latency_us": values.astype(np.int32)})
            histogram = Histogram()
            histogram.record_all(values.tolist())
            writer.latency(repetition, "intended", at_us, 1_000_000, histogram)
    return run


def long_run(
    root: Path,
    number: int,
    deliveries: npt.NDArray[np.float64],
    *,
    p99_us: npt.NDArray[np.float64] | None = None,
    rss_bytes: Ints | None = None,
    **changes: Any,
) -> RunInfo:
    """A run of one repetition with the given deliveries in each second, and latencies and memory if given."""
    run = info(number, **changes)
    size = len(deliveries)
    run = dataclasses.replace(run, ended_at_us=run.started_at_us + size * 1_000_000)
    at_us = run.started_at_us + np.arange(size, dtype=np.int64) * 1_000_000
    with RunWriter(root, run) as writer:
        counts = deliveries.astype(np.int64)
        whole = {"repetition": 0, "at_us": run.started_at_us, "duration_us": size * 1_000_000}
        writer.add("repetitions", {**whole, "messages": int(counts.sum()) // 75, "deliveries": int(counts.sum())})
        seconds = {"repetition": 0, "at_us": at_us, "duration_us": 1_000_000}
        writer.add("throughput", {**seconds, "messages": counts // 75, "deliveries": counts})
        if p99_us is not None:
            for when, worst in zip(at_us.tolist(), p99_us.tolist(), strict=True):
                histogram = Histogram()
                histogram.record(100, 98)
                histogram.record(int(worst), 2)
                writer.latency(0, "intended", when, 1_000_000, histogram)
        if rss_bytes is not None:
            cpu_us = np.arange(size, dtype=np.int64) * 900_000
            process = {"repetition": 0, "at_us": at_us + 500_000, "process": "target", "cpu_us": cpu_us}
            writer.add("process", {**process, "rss_bytes": rss_bytes})
    return run


def diag_rows(writer: RunWriter, seconds: Sequence[int], seed: int = 1) -> None:
    """Writes DIAG's answers in these seconds of the run: a changing queue, an unchanged one, and two counters."""
    for second in seconds:
        at_us = writer.info.started_at_us + second * 1_000_000
        size = int(np.random.default_rng([seed, second]).integers(0, 1000))
        writer.diag(at_us, "queues", {"/queue/a": {"size": size}, "/queue/b": {"size": 0}})
        for shard in (0, 1):
            writer.diag(at_us, "network", {"in": {"bytes": second * 1000 + shard, "frames": second}}, shard=shard)


def stages(writer: RunWriter, means_ns: Mapping[str, int]) -> None:
    """Writes timings of the stages around these means: 1,000 passes through each stage on each of two shards."""
    for shard in (0, 1):
        for stage, mean in means_ns.items():
            histogram = Histogram()
            histogram.record_all([mean, mean * 9 // 10, mean * 11 // 10] * 333 + [mean])
            writer.stage(writer.info.started_at_us + 1_000_000, shard, stage, histogram)
