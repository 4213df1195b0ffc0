"""CPU and memory of processes and their children, from /proc. Without /proc nothing is found."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stompica.bench import BenchError

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """CPU and memory of a process and its descendants."""

    cpu_us: int
    """User and system time of all living threads since they started."""
    rss_bytes: int
    threads: int


def exists(pid: int) -> bool:
    """Whether the process exists."""
    return (_PROC / str(pid)).is_dir()


def usage(pid: int) -> Usage | None:
    """CPU and memory of a process tree now; None if it has ended."""
    cpu_ns = rss_bytes = threads = 0
    for member in tree(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            tasks = list((_PROC / str(member) / "task").iterdir())
            threads += len(tasks)
            rss_bytes += int((_PROC / str(member) / "statm").read_text().split()[1]) * _PAGE_BYTES
            for task in tasks:
                # schedstat counts in ns, stat in 10 ms.
                with contextlib.suppress(OSError):
                    cpu_ns += int((task / "schedstat").read_text().split()[0])
    return Usage(cpu_ns // 1000, rss_bytes, threads) if threads else None


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    pids = [root]
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in (_PROC / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    pids += [int(child) for child in (task / "children").read_text().split()]
    return pids


@contextlib.contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Within the context, processes started by this thread run on these cores only; no cores: no restriction."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    thread = threading.get_native_id()
    former = os.sched_getaffinity(thread)
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:
        raise BenchError(f"can't pin to cores {sorted(cores)}: this process may use {sorted(former)}") from None
    try:
        yield
    finally:
        os.sched_setaffinity(thread, former)


@dataclass(frozen=True)
class Pinning:
    """The cores of target and generator; empty: all."""

    target: tuple[int, ...] = ()
    generator: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"target on {_list(self.target)}, generator on {_list(self.generator)}" if self.target else "none"


def pinning(text: str) -> Pinning:
    """`auto`, `off`, or `TARGET:GENERATOR`, each a list of cores such as `0,1` or `0-3`.

    With four cores or more, `auto` gives the last one to the generator, which has one thread, and the others to the
    target. With fewer there is no pinning: it would take cores away from what is measured.
    """
    if text == "off" or not hasattr(os, "sched_getaffinity"):
        return Pinning()
    if text == "auto":
        cores = sorted(os.sched_getaffinity(0))
        return Pinning(tuple(cores[:-1]), (cores[-1],)) if len(cores) >= 4 else Pinning()
    target, colon, generator = text.partition(":")
    try:
        if not colon:
            raise ValueError
        wanted = Pinning(_cores(target), _cores(generator))
    except ValueError:
        raise BenchError(f"--pin {text}: write auto, off, or TARGET:GENERATOR, such as 0-2:3") from None
    usable = os.sched_getaffinity(0)
    if not usable.issuperset((*wanted.target, *wanted.generator)):
        raise BenchError(f"--pin {text}: this process may use the cores {_list(sorted(usable))}")
    return wanted


def _cores(text: str) -> tuple[int, ...]:
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        cores.update(range(int(first), int(last if dash else first) + 1))
    if not cores:
        raise ValueError
    return tuple(sorted(cores))


def _list(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores)) or "all"
