"""Exports a campaign's repetitions as recordings: one run for each case."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stompica import __version__
from stompica.bench import figures, loadgen, machine
from stompica.bench.campaign import RUNS, Campaign, Case, Record
from stompica.bench.sampler import STAGES, Stages, now_us, spread
from stompica.bench.workload import Point
from stompica.recording import Bucket, RunInfo, RunWriter, Target, Workload, new_run_id

SERIES = (
    ("latency", "intended", "intended_us"),
    ("latency", "write", "write_us"),
    ("window_latency", "window", "window_us"),
)
"""Object in the load generator's result, series of table `latency` made from it, and the name of its buckets."""

DISTINGUISHES = ("kind", "subscriptions", "ids", "joint", "pattern", "spread", "window", "seconds")
"""Fields of a workload that have no field of their own in run.json."""


def write(campaign: Campaign) -> list[Path]:
    """Writes all recordings again; returns their folders, in the order of the cases."""
    root = campaign.folder / RUNS
    if root.exists():
        shutil.rmtree(root)
    root.mkdir()
    return [folder for case in campaign.plan.cases for folder in _record(campaign, case, root)]


def _record(campaign: Campaign, case: Case, root: Path) -> Iterator[Path]:
    records = campaign.records(case)
    if not records:
        return
    with RunWriter(root, _info(campaign, case, records)) as writer:
        for number, record in records.items():
            _repetition(writer, number, record)
            samples = campaign.samples(case, number)
            if samples.exists():
                _samples(writer, number, record, samples.read_bytes())
        _diag(writer, records.values())
        missing = campaign.plan.repetitions - len(records)
        fault = next((record.fault for record in records.values() if record.fault), "")
        writer.close(fault or (f"interrupted: {missing} repetitions are missing" if missing else ""))
    yield writer.folder


def _info(campaign: Campaign, case: Case, records: Mapping[int, Record]) -> RunInfo:
    first = next(iter(records.values()))
    target, variant, plan = first.target, case.variant, campaign.plan
    moments = [row[0] for record in records.values() for row in record.processes] or [now_us()]
    tree = next(loadgen.source_trees(), None)
    own = variant.target == "stompica"
    versions = {"harness": __version__, **target["versions"]}
    if not own:
        versions["protocol"] = target["protocol"]
    same = [other for other in plan.cases if other.variant.target == "stompica" and other.point == case.point]
    return RunInfo(
        run_id=new_run_id(),
        target=Target(variant.target, target["version"], machine.commit_of(tree, variant.target, variant.python)),
        workload=_workload(case.point),
        machine=machine.here(),
        started_at_us=min(moments),
        campaign=plan.name,
        label=variant.label,
        baseline=same[:1] == [case],
        writers=target["writers"],
        settings={**variant.settings, **_conditions(campaign, case, first)},
        versions=versions,
        ended_at_us=max(moments),
        figures=figures.medians([record.run for record in records.values()]),
    )


def _conditions(campaign: Campaign, case: Case, record: Record) -> dict[str, str]:
    """Conditions other than settings that may affect a figure."""
    found = {} if record.pinned in ("", "none") else {"pinned": record.pinned}
    if case.variant.target == "stompica" and campaign.plan.times_stages(case.variant):
        found["stages"] = "timed"
    if campaign.plan.quick:
        found["quick"] = "figures mean nothing"
    return found


def _workload(point: Point) -> Workload:
    options = {name: str(point.fields[name]) for name in DISTINGUISHES if name in point.fields}
    return Workload(
        point.workload,
        point.transport,
        point["publishers"],
        point["connections"] * point["subscriptions"],
        point["body"],
        point["ack"],
        point["prefetch"],
        point["rate"] if point["kind"] in ("latency", "persist-rate") else 0,
        options,
    )


def _repetition(writer: RunWriter, number: int, record: Record) -> None:
    run = record.run
    begun_us = run.get("begun_unix_us") or (record.processes[0][0] if record.processes else now_us())
    used_s, own_s = run.get("target_cpu_s"), run.get("generator_cpu_s")
    writer.add(
        "repetitions",
        {
            "repetition": number,
            "at_us": begun_us,
            "duration_us": _us(run.get("seconds", 0.0)),
            "messages": run.get("messages", 0),
            "deliveries": run.get("deliveries", 0),
            "target_cpu_us": None if used_s is None else _us(used_s),
            "generator_cpu_us": None if own_s is None else _us(own_s),
            "peak_rss_bytes": record.peak_rss_bytes,
            "fault": record.fault or None,
        },
    )
    for interval in run.get("series") or []:
        row = {name: interval[name] for name in ("duration_us", "messages", "deliveries")}
        writer.add("throughput", {"repetition": number, "at_us": begun_us + interval["at_us"], **row})
    for source, series, name in SERIES:
        for interval in (run.get(source) or {}).get("intervals") or []:
            at_us, duration_us = begun_us + interval["at_us"], interval["duration_us"]
            writer.latency(number, series, at_us, duration_us, _buckets(interval[name]))
    for at_us, process, cpu_us, rss_bytes, threads in record.processes:
        row = {"process": process, "cpu_us": cpu_us, "rss_bytes": rss_bytes, "threads": threads}
        writer.add("process", {"repetition": number, "at_us": at_us, **row})


def _samples(writer: RunWriter, number: int, record: Record, content: bytes) -> None:
    """Reads the load generator's file: a count, then all times, then all latencies; little-endian."""
    (count,) = struct.unpack_from("<Q", content)
    begun_us = record.run["begun_unix_us"]
    moments = [begun_us + at_us for at_us in struct.unpack_from(f"<{count}Q", content, 8)]
    latencies = struct.unpack_from(f"<{count}i", content, 8 + 8 * count)
    writer.add("samples", {"repetition": number, "at_us": moments, "latency_us": list(latencies)})


def _diag(writer: RunWriter, records: Iterable[Record]) -> None:
    write_answers(writer, (answer for record in records for answer in record.answers), Stages())


def write_answers(writer: RunWriter, answers: Iterable[Sequence[Any]], stages: Stages) -> None:
    """Writes answers of DIAG. `stages` holds the last timings that were written."""

    def write(at: int, query: str, shard: int | None, row: Mapping[str, Any], totals: Mapping[str, str]) -> None:
        writer.diag(at, query, row, shard=shard, part_of=totals)

    for at_us, query, answer in answers:
        spread(at_us, query, answer, write)
        if query == STAGES:
            for stage, buckets in stages.since(answer).items():
                # DIAG's upper bounds are outside their buckets, a recording's are inside.
                writer.stage(at_us, None, stage, [Bucket(low, high - 1, count) for low, high, count in buckets])


def _buckets(pairs: Iterable[Sequence[int]]) -> list[Bucket]:
    """Buckets of the load generator, which gives upper bounds; buckets are those of `Histogram`."""
    from stompica.recording import histogram

    return [Bucket(*histogram.bounds(high), count) for high, count in pairs]


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
