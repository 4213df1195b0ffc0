"""The figures of a campaign as a table: medians over the repetitions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stompica.bench.campaign import Campaign, Case, Part
from stompica.bench.workload import SWEEPS
from stompica.tabular import table

GENERATOR_BUSY = 0.8
"""Share of its core from which on the generator may have been the limit."""


def lines(campaign: Campaign) -> Iterator[str]:
    """The table, and below it what failed."""
    rows = [_row(campaign, case) for case in campaign.plan.cases]
    shown = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    yield from table([{name: row[name] for name in shown} for row in rows])
    for case in campaign.plan.cases:
        for number, part in campaign.parts(case).items():
            if part.fault:
                yield f"FAILED {case.point.workload} {case.variant.name}, repetition {number}: {part.fault}"
            for fault in part.faults:
                yield f"note: {case.variant.name}: {fault}"
    if campaign.plan.quick:
        yield "a quick run: these figures mean nothing"


def _row(campaign: Campaign, case: Case) -> dict[str, str]:
    parts = list(campaign.parts(case).values())
    runs = [part.run for part in parts]
    failed = any(part.fault for part in parts)
    row = {
        "workload": case.point.workload,
        **_axes(campaign, case),
        "over": case.point.transport,
        "variant": case.variant.name,
        "writers": str(parts[0].target["writers"] or "") if parts else "",
    }
    figures = {
        "per_s": "",
        "cpu_us_each": "",
        "p50_us": "",
        "p99_us": "",
        "max_us": "",
        "generator": "",
        "peak_MiB": "",
    }
    if runs and not failed:
        figures["per_s"] = _rate(_median(runs, "deliveries_per_s"))
        figures["cpu_us_each"] = f"{_median(runs, 'cpu_us_per_delivery') or 0:.4g}"
        figures |= _latencies(runs)
        share = _median(runs, "generator_share") or 0
        figures["generator"] = f"{share:.0%}" + (" busy" if share > GENERATOR_BUSY else "")
        figures["peak_MiB"] = _peak(parts)
    repetitions = "FAILED" if failed else f"{len(parts)}/{campaign.plan.repetitions}"
    return {**row, **figures, "repetitions": repetitions}


def _axes(campaign: Campaign, case: Case) -> dict[str, str]:
    """What a sweep varied, as far as it has no column of its own."""
    names = {"subscribers": "connections"}
    found = {}
    for name in SWEEPS:
        key = names.get(name, name)
        values = {other.point[key] for other in campaign.plan.cases if other.point.workload == case.point.workload}
        fitted = name == "window"
        found[name] = str(case.point[key]) if len(values) > 1 and not fitted else ""
    return {name: value for name, value in found.items() if name not in ("writers", "transport")}


def _latencies(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    whole = [run["latency"]["from_intended"] for run in runs if run.get("latency")]
    if len(whole) < len(runs):
        return {}
    return {name: f"{statistics.median(row[name] for row in whole):.0f}" for name in ("p50_us", "p99_us", "max_us")}


def _peak(parts: Sequence[Part]) -> str:
    peaks = [part.record.get("peak_rss_bytes") or 0 for part in parts]
    seen = [row[3] for part in parts for row in part.processes if row[1] == "target"]
    most = max([*peaks, *seen], default=0)
    return f"{most / 2**20:.0f}" if most else ""


def _median(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    return statistics.median(values) if values else None


def _rate(value: float | None) -> str:
    if value is None:
        return ""
    for divisor, unit in ((1e6, "M"), (1e3, "k")):
        if value >= divisor:
            return f"{value / divisor:.3g} {unit}"
    return f"{value:.3g}"
