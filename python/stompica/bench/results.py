"""The results of a campaign in one file: a line of JSON for each case, with all repetitions.

This file is kept when documents quote figures; `bench/render.py` makes tables from it. What happened over time is in
the recordings (docs/recording.md).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompica.bench import BenchError, loadgen, machine
from stompica.bench.campaign import Campaign, Case, Record
from stompica.bench.sampler import now_us
from stompica.bench.workload import DEFAULTS, Point

FORMAT = 1
FILE = "results.jsonl"

BROKER = "broker"
"""Name of this broker in the file; peers have their own names."""

OVER_TIME = ("series", "intervals")
"""Parts of a repetition that the recordings hold."""


@dataclass(frozen=True)
class Result:
    """One case."""

    workload: Mapping[str, Any]
    """All fields of the workload, as it was run."""
    target: str
    """`broker`, or the name of a peer."""
    transport: str
    writers: int | None
    """Setting `writers` of this broker; None: its default."""
    settings: Sequence[str]
    """Other settings, as `key=value`."""
    quick: bool
    """Whether this was a smoke run, whose figures mean nothing."""
    commit: str
    changed: bool
    """Whether files of the code differed from the commit."""
    machine: Mapping[str, Any]
    versions: Mapping[str, str | None]
    """`broker` (name and version), `python`."""
    started_unix_s: int
    peak_rss_bytes: int | None
    runs: Sequence[Mapping[str, Any]]
    """The load generator's results, one for each repetition."""
    relay: Mapping[str, Any] | None = None
    """`runs` of the ideal relay under the same load, which took turns with these."""
    label: str = ""
    """Name of the variant on the command line."""


def write(campaign: Campaign) -> Path:
    """Writes the file of a campaign again; returns its path."""
    measured = [(case, records) for case in campaign.plan.cases if (records := list(campaign.records(case).values()))]
    relay = {_key(case.point): records for case, records in measured if case.variant.target == "relay"}
    others = {_key(case.point) for case, _ in measured if case.variant.target != "relay"}
    lines = []
    for case, records in measured:
        beside = relay.get(_key(case.point))
        if case.variant.target == "relay":
            if _key(case.point) in others:
                continue  # it is part of their lines
            beside = None
        made = dataclasses.asdict(_result(campaign, case, records, beside))
        lines.append(json.dumps({"format": FORMAT, **made}) + "\n")
    path = campaign.folder / FILE
    path.write_text("".join(lines), encoding="utf-8")
    return path


def read(path: Path) -> list[Result]:
    """The results of a file. BenchError if it can't be read."""
    names = {field.name for field in dataclasses.fields(Result)}
    found = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            content = json.loads(line)
            if content.get("format") != FORMAT:
                raise BenchError(f"{path} has format {content.get('format')}; this version reads format {FORMAT}")
            found.append(Result(**{name: value for name, value in content.items() if name in names}))
    except (OSError, ValueError, TypeError) as error:
        raise BenchError(f"{path}: {error}") from None
    return found


def _key(point: Point) -> str:
    """A key that is equal for cases that take turns."""
    return json.dumps(dataclasses.asdict(dataclasses.replace(point, writers=None)), sort_keys=True)


def _result(campaign: Campaign, case: Case, records: Sequence[Record], relay: Sequence[Record] | None) -> Result:
    target, variant = records[0].target, case.variant
    commit = machine.commit_of(next(loadgen.source_trees(), None), variant.target, variant.python)
    python = target["versions"].get("python")
    moments = [record.run.get("begun_unix_us") or now_us() for record in records]
    return Result(
        workload={**DEFAULTS, **case.point.fields, "wanted": case.point.wanted},
        target=BROKER if variant.target == "stompica" else variant.target,
        transport=case.point.transport,
        writers=variant.writers,
        settings=[f"{key}={value}" for key, value in variant.settings.items()],
        quick=campaign.plan.quick,
        commit=commit.removesuffix("+"),
        changed=commit.endswith("+"),
        machine=dataclasses.asdict(machine.here()),
        versions={
            "broker": f"{target['name']} {target['version']}".strip(),
            "python": f"Python {python}" if python else None,
        },
        started_unix_s=min(moments) // 1_000_000,
        peak_rss_bytes=max(record.peak_rss_bytes or 0 for record in records) or None,
        runs=[_whole(record.run) for record in records],
        relay={"runs": [_whole(record.run) for record in relay]} if relay else None,
        label=variant.label,
    )


def _whole(run: Mapping[str, Any]) -> dict[str, Any]:
    """A repetition without its parts over time."""
    return {
        name: _whole(value) if isinstance(value, dict) else value
        for name, value in run.items()
        if name not in OVER_TIME
    }
