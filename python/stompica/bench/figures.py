"""The figures of a campaign: medians over the repetitions, as numbers for run.json and as tables for the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stompica.bench.campaign import Campaign, Case, Record
from stompica.bench.fields import SWEPT
from stompica.tabular import table

GENERATOR_BUSY = 0.8
"""Share of its core above which the generator may have been the limit."""

GROUPS = ("idle", "held", "firehose", "recovery")
"""Objects in the load generator's result with figures of one kind of workload. Each has its own table."""

BESIDE = "persist"
"""An object with figures that are shown beside the rates."""

LEAST_BY_MOST = "least_by_most_share"
"""Messages of the consumer that received least, divided by those of the one that received most."""

NAMES = {"ratio": "beside_by_alone_ratio", "count": "held"}
"""Names of these numbers that are not clear outside their object, and what they are called instead."""


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Figures that no table of a recording has, such as `user_bytes_per_connection`; names contain the units.

    Empty if a repetition failed, and for workloads that have none.
    """
    if any(run.get("fault") for run in runs):
        return {}
    found: dict[str, float] = {}
    kept = [run[group] for run in runs for group in (*GROUPS, BESIDE) if run.get(group)]
    for name, value in (kept[0] if kept else {}).items():
        if type(value) in (int, float) and all(name in one for one in kept):
            found[NAMES.get(name, name)] = statistics.median(one[name] for one in kept)
    shares = [run["shares"]["consumed"] for run in runs if run.get("shares")]
    if shares:
        found[LEAST_BY_MOST] = statistics.median(min(each) / max(*each, 1) for each in shares)
    return found


def lines(campaign: Campaign) -> Iterator[str]:
    """The lines of the tables, followed by failures."""
    tables: dict[str, list[dict[str, str]]] = {name: [] for name in ("", *GROUPS)}
    for case in campaign.plan.cases:
        records = list(campaign.records(case).values())
        found = medians([record.run for record in records])
        group = next((name for name in GROUPS if found and records[0].run.get(name)), "")
        figures = _of_group(found, records, group) if group else _speed(records, found)
        tables[group].append({**_head(campaign, case, records), **figures, "repetitions": _count(campaign, records)})
    for number, rows in enumerate(filter(None, tables.values())):
        if number:
            yield ""
        names = dict.fromkeys(name for row in rows for name in row)
        shown = [name for name in names if any(row.get(name) for row in rows)]
        yield from table([{name: row.get(name, "") for name in shown} for row in rows])
    for case in campaign.plan.cases:
        for number, record in campaign.records(case).items():
            if record.fault:
                yield f"FAILED {case.point.workload} {case.variant.name}, repetition {number + 1}: {record.fault}"
            for fault in record.faults:
                yield f"note: {case.variant.name}: {fault}"
    if campaign.plan.quick:
        yield "a quick run: these figures mean nothing"


def _head(campaign: Campaign, case: Case, records: Sequence[Record]) -> dict[str, str]:
    return {
        "workload": case.point.workload,
        **_axes(campaign, case),
        "over": case.point.transport,
        "variant": case.variant.name,
        "writers": str(records[0].target["writers"] or "") if records else "",
    }


def _speed(records: Sequence[Record], found: Mapping[str, float]) -> dict[str, str]:
    """Rates, costs and latencies; empty texts if there are none."""
    names = ("per_s", "cpu_us_each", "p50_us", "p99_us", "max_us", "window_p50_us", "window_p99_us", "least_by_most")
    figures = dict.fromkeys((*names, "generator", "peak_MiB"), "")
    runs = [record.run for record in records]
    if not runs or any(record.fault for record in records):
        return figures
    figures["per_s"] = _rate(_median(runs, "deliveries_per_s"))
    figures["cpu_us_each"] = f"{_median(runs, 'cpu_us_per_delivery') or 0:.4g}"
    figures |= _latencies(runs, "latency", "from_intended", "", ("p50_us", "p99_us", "max_us"))
    figures |= _latencies(runs, "window_latency", "from_batch", "window_", ("p50_us", "p99_us"))
    if LEAST_BY_MOST in found:
        figures["least_by_most"] = f"{found[LEAST_BY_MOST]:.2f}"
    if any(run.get(BESIDE) for run in runs):
        figures |= {name: _short(value) for name, value in found.items()}
    share = _median(runs, "generator_share") or 0
    figures["generator"] = f"{share:.0%}" + (" busy" if share > GENERATOR_BUSY else "")
    figures["peak_MiB"] = _peak(records)
    return figures


def _of_group(found: Mapping[str, float], records: Sequence[Record], group: str) -> dict[str, str]:
    texts = {name: value for name, value in records[0].run[group].items() if isinstance(value, str)}
    return {**{name: _short(value) for name, value in found.items()}, **texts, "peak_MiB": _peak(records)}


def _count(campaign: Campaign, records: Sequence[Record]) -> str:
    return "FAILED" if any(record.fault for record in records) else f"{len(records)}/{campaign.plan.repetitions}"


def _axes(campaign: Campaign, case: Case) -> dict[str, str]:
    """What a sweep varied, except what always has a column."""
    fields = {name: "connections" if name == "subscribers" else name for name in SWEPT}
    del fields["writers"], fields["transport"], fields["window"]
    same = [other.point for other in campaign.plan.cases if other.point.workload == case.point.workload]
    found = {}
    for name, field in fields.items():
        varied = len({point[field] for point in same}) > 1
        found[name] = str(case.point[field]) if varied else ""
    # The window is adapted to the other axes: it is an axis only where all others are equal.
    alike = [point for point in same if all(point[field] == case.point[field] for field in fields.values())]
    varied = len({point["window"] for point in alike}) > 1
    return {**found, "window": str(case.point["window"]) if varied else ""}


def _latencies(
    runs: Sequence[Mapping[str, Any]], source: str, since: str, prefix: str, names: Sequence[str]
) -> dict[str, str]:
    whole = [run[source][since] for run in runs if run.get(source)]
    if len(whole) < len(runs):
        return {}
    return {f"{prefix}{name}": f"{statistics.median(row[name] for row in whole):.0f}" for name in names}


def _peak(records: Sequence[Record]) -> str:
    most = max((record.peak_rss_bytes or 0 for record in records), default=0)
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


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
