"""The interface of an adapter, and what adapters share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from stompica.bench import BenchError, procfs
from stompica.bench.target import Address, Process, Running
from stompica.bench.workload import Point

_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")


class Missing(BenchError):
    """The peer is not installed. The message says what was searched for."""


class Peer(ABC):
    """A kind of server."""

    name: str
    kinds: Sequence[str] = ("window", "latency", "fanin", "queue", "persist", "persist-rate")
    """Kinds of workload that it can be measured with."""
    transports: Sequence[str] = ("tcp", "ws")
    share: float = 1.0
    """Share of the workload's messages in its rounds: a slow server would need minutes for all of them."""

    @abstractmethod
    def find(self) -> str:
        """Returns its version. Missing if it is not installed."""

    @abstractmethod
    def start(self, scratch: Path, cores: Sequence[int] = ()) -> AbstractContextManager[Running]:
        """Runs it until the context ends. Missing, or BenchError with the end of its log."""

    def running(self, version: str, process: Process, addresses: Mapping[str, Address], **more: Any) -> Running:
        """The running server, with further fields of Running."""
        return Running(self.name, version, process.pid, addresses, ended=process.ended, **more)

    def refuses(self, point: Point) -> str:
        """Why it can't run this workload; empty if it can."""
        if point["kind"] not in self.kinds:
            return f"it can't run workloads of kind {point['kind']}"
        if point.transport not in self.transports:
            return f"it is not measured over {point.transport}"
        return ""


def program(*names: str) -> Path:
    """A program by one of its names, also in folders for administrators. Missing if there is none."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_FOLDERS))
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return Path(found)
    raise Missing(f"not installed: no program {' or '.join(names)}")


def version(command: Sequence[str]) -> str:
    """The first version number that a command prints; empty if it prints none."""
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+(\.\d+)?", printed.stdout + printed.stderr)
    return found[0] if found else ""


def launch(
    command: Sequence[str],
    scratch: Path,
    cores: Sequence[int],
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Starts a server in its scratch folder, on these cores."""
    with procfs.pinned(cores):
        return Process(command, scratch / "log.txt", environment, scratch)
