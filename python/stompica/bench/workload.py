"""Workloads: the TOML files in bench/workloads, and the points of their sweeps."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stompica.bench import BenchError, fields

# Part of the standard library since Python 3.11.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

DEFAULTS: dict[str, Any] = {
    "kind": "window",
    "transports": ["tcp"],
    "publishers": 1,
    "connections": 1,
    "subscriptions": 1,
    "body": 117,
    "ack": "auto",
    "prefetch": 0,
    "window": 1000,
    "messages": 1,
    "rate": 1000,
    "seconds": 5.0,
    "min_cpu_s": 1.0,
    "relay": False,
}
"""Defaults for fields that a workload's file leaves out; those of the load generator."""

UNDER_WAY_BYTES = 8 * 1024 * 1024
"""A sweep over bodies keeps about this much in flight at most."""
ROUND_BYTES = 32 * 1024 * 1024
ROUND_DELIVERIES = 1_000_000
"""A sweep over subscribers keeps about this many deliveries per round."""

ALL = "all"
"""Name for all workloads without a sweep."""

HARNESS_ONLY = ("wanted", "group", "about", "settings")
"""Fields that are no part of what the load generator runs."""

FRESH_KINDS = ("idle", "backlog", "queues", "recover")
"""Kinds that compare memory with that of a broker that has had no connection, or that start it themselves."""


@dataclass(frozen=True)
class Workload:
    """One file."""

    name: str
    about: str
    fields: Mapping[str, Any]
    """Its fields, without `sweep`."""
    group: str
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name, DEFAULTS.get(name))


@dataclass(frozen=True)
class Point:
    """A workload with one value chosen for each axis."""

    workload: str
    transport: str
    writers: int | None
    """Setting `writers` of this broker; None: its default."""
    fields: Mapping[str, Any]
    wanted: Mapping[str, float] = field(default_factory=dict)
    """Figures to reach: `per_s` at least, `cpu_us` and `bytes` at most."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of this broker that the workload needs; those of a variant come before them."""

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name, DEFAULTS.get(name))

    @property
    def needs_fresh_broker(self) -> bool:
        """Whether each repetition needs a new broker process."""
        return self["kind"] in FRESH_KINDS

    @property
    def has_warm_up(self) -> bool:
        """Whether a short repetition precedes the first. A short firehose would end before the slow one is cut off."""
        return not self.needs_fresh_broker and self["kind"] != "firehose"

    def toml(self) -> str:
        """The content of the file for the load generator."""
        return "".join(f"{name} = {_toml(value)}\n" for name, value in self.fields.items())


def load(folder: Path) -> list[Workload]:
    """All workloads of a folder, sorted by name. BenchError for a folder or file that can't be used."""
    if not folder.is_dir():
        raise BenchError(
            f"no folder {folder}: run this from the top of the source tree, or name the folder with --workloads"
        )
    found = [_read(path) for path in sorted(folder.glob("*.toml"))]
    if not found:
        raise BenchError(f"{folder} contains no workload: each is a file NAME.toml")
    return found


def pick(known: Sequence[Workload], names: Sequence[str]) -> list[Workload]:
    """Workloads by name or group; `all` stands for those without a sweep. BenchError for an unknown name."""
    picked: list[Workload] = []
    for name in names:
        found = [workload for workload in known if name in (workload.name, workload.group)]
        found = found or [workload for workload in known if name == ALL and not workload.sweep]
        if not found:
            raise BenchError(
                f"unknown workload {name!r}; known workloads are {', '.join(workload.name for workload in known)}"
            )
        picked += [workload for workload in found if workload not in picked]
    return picked


def points(workload: Workload, more: Mapping[str, Sequence[Any]], quick: bool = False) -> list[Point]:
    """All points: all combinations of the values in the sweeps of the file and of `more`."""
    sweep = {**workload.sweep, **more}
    transports = sweep.pop("transport", None) or workload["transports"]
    impossible = [transport for transport in transports if transport not in workload["transports"]]
    if impossible:
        goes = " and ".join(workload["transports"])
        raise BenchError(f"workload {workload.name} is not made for {impossible[0]}, only for {goes}")
    found = []
    for transport, *values in itertools.product(transports, *sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        found.append(_point(workload, transport, chosen, quick))
    return found


def parse_sweep(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Parses texts such as `body=117,1024` from the command line. BenchError for what can't be varied."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise BenchError(f"--sweep {text}: write NAME=VALUE,VALUE")
        if name in found:
            raise BenchError(f"--sweep {text}: {name} is varied twice")
        found[name] = fields.swept(name, values.split(","), f"--sweep {text}")
    return found


def _read(path: Path) -> Workload:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from None
    if content.get("name") != path.stem:
        raise BenchError(f"{path}: name = {content.get('name')!r}, but the file is called {path.stem!r}")
    sweep = content.pop("sweep", {})
    if not isinstance(sweep, dict) or not all(isinstance(values, list) and values for values in sweep.values()):
        raise BenchError(f"{path}: [sweep] must contain lists of values")
    checked = {name: fields.swept(name, values, f"{path}: [sweep]") for name, values in sweep.items()}
    fields.check(content, str(path))
    return Workload(path.stem, content.get("about", ""), content, content.get("group", ""), checked)


def _point(workload: Workload, transport: str, chosen: dict[str, Any], quick: bool) -> Point:
    """Makes a point. Fields that do not fit a swept value are adapted to it, unless they are swept as well."""
    writers = chosen.pop("writers", None)
    made = {name: value for name, value in workload.fields.items() if name not in HARNESS_ONLY}
    if "subscribers" in chosen:
        made["connections"] = chosen.pop("subscribers")
        if workload["kind"] in ("window", "fanin"):
            made["messages"] = min(300_000, max(100, ROUND_DELIVERIES // made["connections"]))
    made.update(chosen)

    def now(name: str) -> Any:
        return made.get(name, DEFAULTS[name])

    if "body" in chosen and "window" not in chosen:
        made["window"] = min(now("window"), max(8, UNDER_WAY_BYTES // now("body")))
        made["messages"] = min(now("messages"), max(40, ROUND_BYTES // now("body")))
    if now("kind") == "queue" and "window" not in chosen:
        credit = 2 * now("prefetch") * now("connections")
        made["window"] = max(now("window"), credit // now("publishers") + 1)
    if quick:
        made["messages"] = max(now("messages") // 10, 1)
        made["seconds"] = max(now("seconds") / 5, 0.5)
        made["min_cpu_s"] = 0.0
        made["connections"] = min(now("connections"), 500)
    made["transports"] = [transport]
    wanted, settings = (workload.fields.get(name, {}) for name in ("wanted", "settings"))
    return Point(workload.name, transport, writers, made, wanted, settings)


def _toml(value: Any) -> str:
    """A value in TOML: as in JSON, except for the names in inline tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)
