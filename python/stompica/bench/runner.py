"""Runs a campaign: starts the targets, lets the variants take turns, keeps each repetition."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompica.bench import BenchError, loadgen, procfs, recovery
from stompica.bench.campaign import Campaign, Case, Record, Variant
from stompica.bench.peers import PEERS
from stompica.bench.sampler import QUERIES, STAGES, Sampler, Samples
from stompica.bench.target import OwnBroker, Running
from stompica.bench.workload import Point


@dataclass
class Progress:
    """Callbacks for what happens; each may be replaced."""

    say: Callable[[str], None] = lambda text: None
    """Takes a line for the user."""
    begins: Callable[[Case, int], None] = lambda case, repetition: None
    ended: Callable[[Case, int, Record | None], None] = lambda case, repetition, record: None
    """A repetition is finished; None if it was skipped."""


class Runner:
    """Runs what is missing of one campaign."""

    def __init__(self, campaign: Campaign, progress: Progress, scratch: Path) -> None:
        self._campaign = campaign
        self._plan = campaign.plan
        self._progress = progress
        self._scratch = scratch
        self._program = loadgen.find()
        self._pinning = procfs.pinning(self._plan.pin)

    def run(self) -> bool:
        """Makes the missing repetitions; returns whether all were made and none failed.

        BenchError if this broker can't be started.
        """
        for group in self._plan.groups():
            self._run_group(group)
        made = (self._campaign.records(case).values() for case in self._plan.cases)
        return all(
            len(records) == self._plan.repetitions and not any(record.fault for record in records) for records in made
        )

    def _run_group(self, group: Sequence[Case]) -> None:
        """Makes repetition after repetition, each of every variant: A B A B. Brokers live through a group."""
        with contextlib.ExitStack() as stack:
            running: dict[int, Running | None] = {}
            for repetition in range(self._plan.repetitions):
                for case in group:
                    if self._campaign.has(case, repetition) or self._campaign.is_failed(case):
                        self._progress.ended(case, repetition, None)
                        continue
                    self._progress.begins(case, repetition)
                    record: Record | None
                    if case.point["kind"] == "recover":
                        record = self._recovery(case)
                    elif case.point.needs_fresh_broker:
                        with contextlib.ExitStack() as once:
                            record = self._repetition(case, repetition, self._start(case, once))
                    else:
                        first = case.number not in running
                        if first:
                            running[case.number] = self._start(case, stack)
                        record = self._repetition(
                            case, repetition, running[case.number], first and case.point.has_warm_up
                        )
                    if record is not None:
                        self._campaign.keep(case, repetition, record)
                    self._progress.ended(case, repetition, record)

    def _start(self, case: Case, stack: contextlib.ExitStack) -> Running | None:
        """Starts a variant; None, with a message, if it is a peer that can't be started."""
        folder = Path(stack.enter_context(self._folder(case.folder)))
        variant = case.variant
        own = variant.target == "stompica"
        starter = _own(variant) if own else PEERS[variant.target]
        self._progress.say(f"starting {variant.name}")
        try:
            running: Running = stack.enter_context(starter.start(folder, self._pinning.target))
        except BenchError as error:
            if own:
                raise
            self._progress.say(f"{variant.name} is left out: {error}")
            return None
        return running

    def _warm_up(self, case: Case, running: Running, folder: Path) -> dict[str, Any]:
        """Makes a short repetition, which warms up caches and a peer's compiler."""
        short = {"min_cpu_s": 0.0, "seconds": 0.5, "messages": max(1, case.point["messages"] // 10)}
        point = dataclasses.replace(case.point, fields={**case.point.fields, **short})
        return self._order(dataclasses.replace(case, point=point), running, folder, None, lambda _: None)

    def _repetition(self, case: Case, repetition: int, running: Running | None, warm_up: bool = False) -> Record | None:
        """Makes one repetition. A warm-up before it is not kept, unless it fails; then it is kept instead."""
        if running is None:
            return None
        with self._folder("repetition") as name:
            folder, seen = Path(name), Samples()
            run = self._warm_up(case, running, folder) if warm_up else None
            if run is None or not run.get("fault"):
                run, seen = self._measure(case, repetition, running, folder)
        return Record(
            _explained(run, running), _described(running), seen.processes, seen.answers, seen.faults, str(self._pinning)
        )

    def _recovery(self, case: Case) -> Record:
        """Makes a repetition that starts the broker itself, with a new store."""
        with self._folder(case.folder) as name:
            folder = Path(name)

            def part(which: str, running: Running) -> dict[str, Any]:
                order = loadgen.Order(case.point, running, 1000, None, self._pinning.generator, which)
                return _explained(loadgen.run(self._program, order, folder, lambda _: None), running)

            run, running = recovery.measure(_own(case.variant), folder, self._pinning.target, part)
        return Record(run, _described(running), pinned=str(self._pinning))

    def _measure(self, case: Case, repetition: int, running: Running, folder: Path) -> tuple[dict[str, Any], Samples]:
        """The load generator's result, and the samples taken meanwhile."""
        samples = self._campaign.samples(case, repetition) if self._plan.samples else None
        if samples is not None:
            samples.parent.mkdir(parents=True, exist_ok=True)
        queries = (*QUERIES, STAGES) if self._plan.times_stages(case.variant) else QUERIES
        url = running.diag_url if self._plan.diag else None
        with Sampler(self._plan.every_s, url, {"target": running.pid}, queries) as sampler:

            def started(pid: int) -> None:
                sampler.processes["generator"] = pid

            run = self._order(case, running, folder, samples, started)
        return run, sampler.samples

    def _order(
        self, case: Case, running: Running, folder: Path, samples: Path | None, started: Callable[[int], None]
    ) -> dict[str, Any]:
        series_ms = max(1, round(self._plan.every_s * 1000))
        cores = self._pinning.generator
        order = loadgen.Order(self._fitted(case), running, series_ms, samples, cores)
        return loadgen.run(self._program, order, folder, started)

    def _fitted(self, case: Case) -> Point:
        """The point, with rounds that a slow peer can finish in reasonable time."""
        peer = PEERS.get(case.variant.target)
        if peer is None or case.point["kind"] in ("latency", "persist-rate"):
            return case.point
        messages = max(10, round(case.point["messages"] * peer.share))
        return dataclasses.replace(case.point, fields={**case.point.fields, "messages": messages})

    @contextlib.contextmanager
    def _folder(self, name: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=self._scratch, ignore_cleanup_errors=True) as folder:
            yield folder


def _own(variant: Variant) -> OwnBroker:
    return OwnBroker(variant.python or sys.executable, variant.writers, variant.settings)


def _explained(run: dict[str, Any], running: Running) -> dict[str, Any]:
    """A fault says as well how the target ended, if it did."""
    if run.get("fault") and (how := running.ended()):
        run["fault"] += f"; {running.name} ended {how}"
    return run


def _described(running: Running) -> dict[str, Any]:
    return {name: getattr(running, name) for name in ("name", "version", "writers", "versions", "protocol")}
