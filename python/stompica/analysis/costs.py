"""The cost of a run, its bottleneck, and the growth of cost in a sweep."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from stompica.analysis import curves
from stompica.analysis.comparisons import Values
from stompica.analysis.tables import Row
from stompica.recording.run import RunInfo

GENERATOR_BUSY = 0.8
"""Share of its core above which the generator may have been the limit."""

TARGET_BUSY = 0.85
"""Share of its threads (or of the machine's cores) above which the target's CPU was the limit."""

SWEEPS = ("subscribers", "body_bytes", "writers")


def medians(run: RunInfo, values: Values) -> dict[str, float | None]:
    """The median of each metric over the repetitions of a run."""
    known = values.get(run.run_id, {})
    names = ("deliveries_per_s", "cpu_us_per_delivery", "generator_share", "peak_rss_bytes")
    return {name: statistics.median(known[name].values()) if known.get(name) else None for name in names}


def stage_rows(stages: Iterable[Row], names: Mapping[int, str]) -> list[Row]:
    """The rows of the table `stages` from sums by run and stage."""
    found = list(stages)
    totals: dict[int, float] = {}
    for row in found:
        totals[row["run_id"]] = totals.get(row["run_id"], 0.0) + row["total_ns"]
    return [
        {
            "run_id": row["run_id"],
            "run": names[row["run_id"]],
            "stage": row["stage"],
            "passes": row["passes"],
            "total_ms": row["total_ns"] / 1e6,
            "share": row["total_ns"] / totals[row["run_id"]] if totals[row["run_id"]] else None,
            "mean_ns": row["total_ns"] / row["passes"] if row["passes"] else None,
        }
        for row in sorted(found, key=lambda row: (row["run_id"], -row["total_ns"], row["stage"]))
    ]


def bottlenecks(runs: Iterable[RunInfo], names: Mapping[int, str], values: Values, stages: list[Row]) -> list[Row]:
    """The rows of the table `bottlenecks`, as far as it was measured what limited the runs."""
    slowest: dict[int, Row] = {}
    for row in stages:
        slowest.setdefault(row["run_id"], row)
    rows: list[Row] = []
    for run in runs:
        what, share, why = _limit(run, medians(run, values), slowest.get(run.run_id))
        rows.append({"run_id": run.run_id, "run": names[run.run_id], "bottleneck": what, "share": share, "why": why})
    return rows


def _limit(run: RunInfo, figures: Mapping[str, float | None], stage: Row | None) -> tuple[str, float | None, str]:
    busy = figures["generator_share"]
    if busy is not None and busy > GENERATOR_BUSY:
        return "generator", busy, f"the generator used {busy:.0%} of its core: the target may be faster than shown"
    if run.workload.rate_per_s:
        return "rate", None, f"the load was limited to {run.workload.rate_per_s} messages a second"
    if stage is not None and stage["share"] is not None and stage["mean_ns"] is not None:
        share = stage["share"]
        return stage["stage"], share, f"{share:.0%} of the time in all stages, {stage['mean_ns']:.0f} ns a pass"
    rate, cpu = figures["deliveries_per_s"], figures["cpu_us_per_delivery"]
    threads = min(run.writers or run.machine.cores, run.machine.cores)
    if rate is None or cpu is None or threads < 1:
        return "unknown", None, "neither stage timings nor CPU were recorded"
    used = rate * cpu / 1e6 / threads
    if used > TARGET_BUSY:
        return "target's CPU", used, f"{used:.0%} of {threads} threads; no stage timings were recorded"
    return "unknown", used, f"the target used {used:.0%} of {threads} threads: it waited for something else"


def fitted(runs: Iterable[RunInfo], values: Values) -> tuple[list[Row], list[dict[str, Any]]]:
    """The rows of the table `curves`, and for the charts each sweep (`group`, `sweep`, `x`, `y`, `curve`)."""
    rows: list[Row] = []
    sweeps: list[dict[str, Any]] = []
    measured = [(run, medians(run, values)["cpu_us_per_delivery"]) for run in runs if run.state == "complete"]
    for sweep in SWEEPS:
        groups: dict[str, list[tuple[float, float]]] = {}
        for run, cost in measured:
            value = run.writers if sweep == "writers" else getattr(run.workload, sweep)
            if cost is not None and value > 0:
                groups.setdefault(_group(run, sweep), []).append((float(value), cost))
        for group, points in sorted(groups.items()):
            x, y = zip(*sorted(points), strict=True)
            curve = curves.fit(x, y)
            if curve is None:
                continue
            ends = {"points": len(set(x)), "from_x": x[0], "to_x": x[-1]}
            fit = {"curve": str(curve), "a": curve.a, "b": curve.b, "error": curve.error}
            rows.append({"group": group, "sweep": sweep, **ends, **fit})
            sweeps.append({"group": group, "sweep": sweep, "x": x, "y": y, "curve": curve})
    return rows, sweeps


def _group(run: RunInfo, sweep: str) -> str:
    """What all points of a sweep have in common, in words; not the workload's name, which may differ between points."""
    load = run.workload
    parts = [
        f"{run.target.name} {run.target.version}".strip(),
        load.transport,
        f"{load.publishers} publisher{'s' if load.publishers != 1 else ''}",
        f"{load.subscribers} subscribers" if sweep != "subscribers" else "",
        f"bodies of {load.body_bytes} bytes" if sweep != "body_bytes" else "",
        f"{run.writers} threads" if sweep != "writers" and run.writers else "",
        f"ack {load.ack}" + (f" prefetch {load.prefetch}" if load.prefetch else ""),
        f"{load.rate_per_s} messages a second" if load.rate_per_s else "",
        *(f"{key} {value}" for key, value in sorted(load.options.items())),
        *(f"{key}={value}" for key, value in sorted(run.settings.items()) if key != "writers"),
        run.target.commit,
    ]
    return ", ".join(part for part in parts if part)
