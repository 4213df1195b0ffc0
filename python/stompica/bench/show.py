"""The progress bar of a campaign, on stderr; plain lines if that is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stompica.bench.campaign import Campaign, Case, Record
from stompica.bench.figures import medians
from stompica.bench.runner import Progress
from stompica.bench.workload import Point

HEADLINES = ("user_bytes_per_connection", "resident_bytes_each_over_frame", "beside_by_alone_ratio", "recovered_per_s")
"""Figures that are shown for a repetition whose rate means nothing."""


@contextlib.contextmanager
def progress(campaign: Campaign) -> Iterator[Progress]:
    """Callbacks for the runner. The bar disappears with the context."""
    console = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)
    total = campaign.plan.repetitions * len(campaign.plan.cases)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def begins(case: Case, repetition: int) -> None:
            bar.update(task, description=f"{_words(case.point)}: {case.variant.name}")

        def ended(case: Case, repetition: int, record: Record | None) -> None:
            bar.advance(task)
            if record is not None:
                console.print(
                    f"{_words(case.point)}: {case.variant.name}, repetition {repetition + 1}: {_text(record)}"
                )

        yield Progress(console.print, begins, ended)


def _words(point: Point) -> str:
    return f"{point.workload} {point.transport}" + (f" writers={point.writers}" if point.writers else "")


def _text(record: Record) -> str:
    run = record.run
    if record.fault:
        return f"FAILED: {record.fault}"
    each = run.get("cpu_us_per_delivery")
    cost = f", {each:.3g} µs each" if each is not None else ""
    found = medians([run])
    special = [f"{name} {found[name]:.4g}" for name in HEADLINES if name in found]
    if special:
        return ", ".join(special)
    latency = (run.get("latency") or {}).get("from_intended")
    if latency:
        return f"p50 {latency['p50_us']:.0f} µs, p99 {latency['p99_us']:.0f} µs{cost}"
    return f"{run['deliveries_per_s']:,.0f}/s{cost}"
