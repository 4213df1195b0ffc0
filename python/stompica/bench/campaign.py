"""A campaign: a plan of what is measured against what, and one file for each finished repetition.

    FOLDER/campaign.json                     the plan
    FOLDER/repetitions/CASE/0000.json.gz    a repetition as it was measured: the generator's result, samples
    FOLDER/runs/…                            the recordings made from them (docs/recording.md)
    FOLDER/results.jsonl                     all repetitions, without what happened over time, for tables

An interrupted campaign resumes with the repetitions that have no file.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stompica.bench import BenchError
from stompica.bench.workload import Point

FORMAT = 2
PLAN = "campaign.json"
REPETITIONS = "repetitions"
SUFFIX = ".json.gz"
RUNS = "runs"


@dataclass(frozen=True)
class Variant:
    """One thing to measure: this broker with certain settings, or a peer."""

    target: str
    """`stompica`, or the name of a peer."""
    label: str = ""
    """Its name on the command line."""
    writers: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    python: str = ""
    """Another interpreter, which has another version of stompica; empty: this one."""
    stages: bool | None = None
    """Whether it times its stages; None: the plan decides."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return self.label or self.target


@dataclass(frozen=True)
class Case:
    """A variant at a point of a workload. Its repetitions become one recorded run."""

    number: int
    point: Point
    variant: Variant

    @property
    def folder(self) -> str:
        """Name of the folder of its repetitions."""
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.point.workload}-{self.point.transport}-{self.variant.name}")
        return f"{self.number:03}-{words}"


@dataclass(frozen=True)
class Plan:
    """All cases and how they are measured."""

    name: str
    repetitions: int
    cases: tuple[Case, ...]
    quick: bool = False
    """Whether this is a smoke run, whose figures mean nothing."""
    stages: bool = False
    """Whether this broker times its stages, which costs several percent."""
    diag: bool = True
    samples: bool = False
    """Whether every single latency is kept."""
    every_s: float = 0.5
    """Interval of the samples, and of throughput and latency over time."""
    pin: str = "auto"

    def times_stages(self, variant: Variant) -> bool:
        """Whether a variant times its stages."""
        return self.stages if variant.stages is None else variant.stages

    def groups(self) -> Iterator[list[Case]]:
        """Cases of one workload at one point, which take turns: A B A B."""
        groups: dict[str, list[Case]] = {}
        for case in self.cases:
            point = dataclasses.replace(case.point, writers=None)
            groups.setdefault(json.dumps(dataclasses.asdict(point), sort_keys=True), []).append(case)
        yield from groups.values()


@dataclass(frozen=True)
class Record:
    """One finished repetition."""

    run: Mapping[str, Any]
    """The load generator's result."""
    target: Mapping[str, Any]
    """Name, version, writers and further versions of what was measured."""
    processes: Sequence[Sequence[Any]] = ()
    answers: Sequence[Sequence[Any]] = ()
    faults: Sequence[str] = ()
    """Errors of sampling."""
    pinned: str = ""

    @property
    def peak_rss_bytes(self) -> int | None:
        """Most memory that was resident in the target's processes; None: unknown."""
        sampled = [row[3] for row in self.processes if row[1] == "target"]
        return max([self.run.get("peak_rss_bytes") or 0, *sampled]) or None

    @property
    def fault(self) -> str:
        """Why it failed; empty if it did not."""
        return self.run.get("fault") or ""


class Campaign:
    """The folder of a campaign."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan

    @staticmethod
    def create(folder: Path, plan: Plan) -> Campaign:
        """A new folder, or an existing one with the same plan. BenchError if it holds another plan."""
        path = folder / PLAN
        if path.exists():
            known = Campaign.open(folder)
            if dataclasses.replace(known.plan, name=plan.name) != plan:
                raise BenchError(f"{folder} holds another campaign: name another folder, or use --resume {folder}")
            return known
        try:
            (folder / REPETITIONS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchError(f"can't write results into {folder}: {error.strerror}; --into names another") from None
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(plan)}, indent=1) + "\n"
        _write(path, text.encode())
        return Campaign(folder, plan)

    @staticmethod
    def open(folder: Path) -> Campaign:
        """An existing folder. BenchError if it is not a campaign."""
        try:
            content = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BenchError(f"{folder} is not a campaign: it has no {PLAN}") from None
        except (OSError, ValueError) as error:
            raise BenchError(f"{folder / PLAN} can't be read: {error}") from None
        version = content.pop("format", None)
        if version != FORMAT:
            raise BenchError(f"{folder / PLAN} has format {version}; this version of stompica reads format {FORMAT}")
        cases = tuple(
            Case(case["number"], Point(**case["point"]), Variant(**case["variant"])) for case in content.pop("cases")
        )
        return Campaign(folder, Plan(**content, cases=cases))

    def has(self, case: Case, repetition: int) -> bool:
        """Whether the repetition is finished."""
        return self._path(case, repetition).exists()

    def keep(self, case: Case, repetition: int, record: Record) -> None:
        """Keeps a finished repetition."""
        path = self._path(case, repetition)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(record)) + "\n"
        _write(path, gzip.compress(text.encode(), mtime=0))

    def records(self, case: Case) -> dict[int, Record]:
        """The finished repetitions."""
        found = {}
        for path in sorted((self.folder / REPETITIONS / case.folder).glob(f"[0-9]*{SUFFIX}")):
            found[int(path.name.removesuffix(SUFFIX))] = Record(**json.loads(gzip.decompress(path.read_bytes())))
        return found

    def samples(self, case: Case, repetition: int) -> Path:
        """File of the repetition's single latencies."""
        path = self._path(case, repetition)
        return path.with_name(path.name.removesuffix(SUFFIX) + ".samples")

    def is_failed(self, case: Case) -> bool:
        """Whether a repetition failed; then no further ones are made."""
        return any(record.fault for record in self.records(case).values())

    def _path(self, case: Case, repetition: int) -> Path:
        return self.folder / REPETITIONS / case.folder / f"{repetition:04}{SUFFIX}"


def _write(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
