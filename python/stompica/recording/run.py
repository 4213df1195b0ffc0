"""run.json: what was run, where, with which versions. It describes what the Parquet files beside it measure."""

from __future__ import annotations

import dataclasses
import json
import random
import time
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stompica.errors import StompicaError
from stompica.recording.schema import FORMAT

RUN_FILE = "run.json"
"""Name of the file within a run's folder."""

TEMPORARY = ".part-"
"""Prefix of unfinished files' names; readers ignore these files."""

State = Literal["recording", "complete", "failed"]
"""`recording` until the writer is closed; a run that stays so was interrupted. A failed run has a `fault`."""


class RecordingError(StompicaError, ValueError):
    """A recording can't be read or written; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Target:
    """The measured program."""

    name: str
    """`stompica`, `rabbitmq`, `relay`, …"""
    version: str = ""
    commit: str = ""
    """Commit of the code; ends in `+` if files had been modified."""


@dataclass(frozen=True)
class Machine:
    """The machine it ran on."""

    cores: int
    """CPU cores that the processes could use."""
    cpu: str = ""
    """Model of the processor."""
    kernel: str = ""
    """Release of the operating system's kernel."""
    memory_bytes: int = 0
    """Installed memory."""


@dataclass(frozen=True)
class Workload:
    """The load. Runs of one campaign with equal workloads are compared with each other."""

    name: str
    transport: str = "tcp"
    """`tcp` or `ws`."""
    publishers: int = 1
    """Number of publishers; 0 in a live recording."""
    subscribers: int = 1
    """Number of subscriptions that each message reaches."""
    body_bytes: int = 0
    """Length of a message's body."""
    ack: str = "auto"
    """STOMP's ack mode."""
    prefetch: int = 0
    """Unacknowledged deliveries allowed for each subscription; 0: the target's default."""
    rate_per_s: int = 0
    """Target rate of messages per second; 0: as fast as possible."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Other properties that distinguish this workload."""


@dataclass(frozen=True)
class RunInfo:
    """One variant of a workload, measured in one or more repetitions; the content of run.json."""

    run_id: int
    """Unique, below 2^53; from `new_run_id`."""
    target: Target
    workload: Workload
    machine: Machine
    started_at_us: int
    """µs since 1970, UTC."""
    campaign: str = ""
    """Runs of one campaign took turns: repetition n of one is compared with repetition n of another."""
    label: str = ""
    """Display name of this variant: `A`, `writers=1`."""
    baseline: bool = False
    """The variant that the others of its campaign are compared with; by default the first of stompica's."""
    kind: Literal["bench", "live"] = "bench"
    """`live`: a broker in use was recorded, no load was generated."""
    writers: int = 0
    """Threads of the target; 0: unknown."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the target that differ from the defaults."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the programs involved."""
    ended_at_us: int | None = None
    """µs since 1970, UTC."""
    state: State = "recording"
    fault: str = ""
    """Why it failed, for example a lost message."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures outside the tables, medians over repetitions; names end in the unit: `user_bytes_per_connection`."""

    def to_json(self) -> str:
        """Returns the text of run.json."""
        content = {"format": FORMAT, **dataclasses.asdict(self)}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> RunInfo:
        """Parses run.json; ignores unknown names. RecordingError names the defect."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise RecordingError(f"{RUN_FILE} is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise RecordingError(f"{RUN_FILE} is not a JSON object")
        version = content.get("format")
        if version != FORMAT:
            raise RecordingError(f"{RUN_FILE} has format {version!r}; this version of stompica reads format {FORMAT}")
        info: RunInfo = _read(RunInfo, content, "")
        if not 0 <= info.run_id < 1 << 53:
            raise RecordingError(f"{RUN_FILE}: run_id {info.run_id} is not between 0 and 2^53")
        return info


def new_run_id() -> int:
    """Returns a unique id: the time in ms since 1970, followed by three random digits."""
    return time.time_ns() // 1_000_000 * 1000 + random.SystemRandom().randrange(1000)


def _read(kind: type[Any], content: Mapping[str, Any], where: str) -> Any:
    """Builds a dataclass from a JSON object; checks every value against its annotation."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for item in dataclasses.fields(kind):
        if item.name in content:
            values[item.name] = _value(hints[item.name], content[item.name], f"{where}{item.name}")
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise RecordingError(f"{RUN_FILE} lacks {where}{item.name}")
    return kind(**values)


def _value(wanted: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        if not isinstance(value, dict):
            raise RecordingError(f"{RUN_FILE}: {where} is {value!r}, not an object")
        return _read(wanted, value, f"{where}.")
    origin = typing.get_origin(wanted)
    if origin is Literal:
        allowed = typing.get_args(wanted)
        if value not in allowed:
            raise RecordingError(f"{RUN_FILE}: {where} is {value!r}, not one of {', '.join(allowed)}")
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _value(typing.get_args(wanted)[0], value, where)
    if origin is not None:
        return _object(value, typing.get_args(wanted)[1], where)
    if type(value) is not wanted:
        raise RecordingError(f"{RUN_FILE}: {where} is {value!r}, not {wanted.__name__}")
    return value


def _object(value: Any, of: type[str] | type[float], where: str) -> Any:
    allowed = (str,) if of is str else (int, float)
    whole = isinstance(value, dict) and all(
        isinstance(one, allowed) and not isinstance(one, bool) for one in value.values()
    )
    if not whole:
        raise RecordingError(
            f"{RUN_FILE}: {where} is {value!r}, not an object of {'texts' if of is str else 'numbers'}"
        )
    return value
