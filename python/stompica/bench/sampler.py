"""Samples a running broker at an interval: DIAG, and CPU and memory of processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stompica.bench import procfs
from stompica.diag import DiagError, RemoteDiag, connect, plain

QUERIES = ("network", "shards", "memory", "queues", "ack", "slow", "stale", "session")
"""Queries of each sample."""

STAGES = "benchmark"
"""A query that makes the broker time its stages."""

ROWS_MAX = 100
"""Queues whose numbers are kept: the longest ones. The others are only part of the sums."""


@dataclass
class Samples:
    """What was sampled. Times are µs since 1970."""

    processes: list[tuple[int, str, int, int, int]] = field(default_factory=list)
    """Time, process, CPU µs, resident bytes, threads."""
    answers: list[tuple[int, str, Any]] = field(default_factory=list)
    """Time, query, answer as in JSON."""
    faults: list[str] = field(default_factory=list)
    """Errors of queries, each once."""


class Sampler:
    """A thread that samples until its `with` block ends; then `samples` is complete.

    `processes` are process ids by name; more may be added while it runs.
    """

    def __init__(
        self, every_s: float, diag_url: str | None, processes: Mapping[str, int], queries: Sequence[str] = QUERIES
    ) -> None:
        self.samples = Samples()
        self.processes = dict(processes)
        self._every_s = every_s
        self._url = diag_url
        self._queries = queries
        self._diag: RemoteDiag | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stompica-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Closes the connection to the broker."""
        if self._diag is not None:
            self._diag.close()
            self._diag = None

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._every_s, time.monotonic())
            self.take()
        self.take()

    def take(self) -> None:
        """Takes one sample of everything."""
        for name, pid in list(self.processes.items()):
            used = procfs.usage(pid)
            if used is not None:
                row = (now_us(), name, used.cpu_us, used.rss_bytes, used.threads)
                self.samples.processes.append(row)
        if self._url is not None:
            for query in self._queries:
                if not self._ask(self._url, query):
                    return  # the next query would take as long to fail

    def take_samples(self) -> Samples:
        """The samples since the last call; faults are those since the start."""
        seen = self.samples
        self.samples = Samples(faults=seen.faults)
        return seen

    def _ask(self, url: str, query: str) -> bool:
        try:
            if self._diag is None:
                self._diag = connect(url, timeout=5.0)
            answer = plain(self._diag(query))
        except DiagError as error:
            if str(error) not in self.samples.faults:
                self.samples.faults.append(str(error))
            self.close()
            return False
        self.samples.answers.append((now_us(), query, answer))
        return True


def now_us() -> int:
    """µs since 1970."""
    return time.time_ns() // 1000


Write = Callable[[int, str, int | None, Mapping[str, Any], Mapping[str, str]], None]
"""Time, query, shard, numbers, and for numbers that are part of a total its name."""

_SHARD_TOTALS = {
    "connections": "network.connections",
    "subscriptions": "session.subscriptions",
    "queues": "queues.queues",
    "frames_in": "network.frames_in",
    "deliveries": "network.deliveries",
}
"""Numbers of shards whose sum another query reports. No query reports the others; their sums are named `shards.…`."""


class Stages:
    """Computes what was added to the growing histograms of `benchmark` since the answer before."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[tuple[int, int], int]] = {}

    def since(self, answer: Mapping[str, Any]) -> dict[str, list[tuple[int, int, int]]]:
        """Buckets `low_ns, high_ns, count` of each stage. After a restart of the broker counts begin at 0.

        `turn`, which includes all others, is left out.
        """
        added: dict[str, list[tuple[int, int, int]]] = {}
        for stage, timing in answer["stages"].items():
            counts = {(low, high): count for low, high, count in timing["buckets"]}
            before = self._seen.get(stage, {})
            if any(counts.get(key, 0) < count for key, count in before.items()):
                before = {}
            self._seen[stage] = counts
            new = [(*key, count - before.get(key, 0)) for key, count in sorted(counts.items())]
            if stage != "turn":
                added[stage] = [row for row in new if row[2] > 0]
        return added


def spread(at_us: int, query: str, answer: Any, write: Write) -> None:
    """Passes an answer's numbers to `write`: of each shard, and of rows in lists by name or as sums."""
    if query == "shards":
        for shard in answer:
            numbers = {name: value for name, value in shard.items() if name != "shard"}
            added = (name for name in numbers if not name.startswith("max_"))  # maxima do not add up
            totals = {name: _SHARD_TOTALS.get(name, f"{query}.{name}") for name in added}
            write(at_us, query, shard["shard"], numbers, totals)
    elif query == "queues":
        write(at_us, query, None, {"queues": len(answer), **_sums(answer)}, {})
        _queues(at_us, query, answer, write)
    elif isinstance(answer, list):
        write(at_us, query, None, {"rows": len(answer), **_sums(answer)}, {})
    elif isinstance(answer, dict) and query != STAGES:
        write(at_us, query, None, answer, {})
    elif query == STAGES and "turn" in answer["stages"]:
        turn = answer["stages"]["turn"]
        write(at_us, query, None, {"turn": {"count": turn["count"], "total_ns": turn["total_ns"]}}, {})


def _queues(at_us: int, query: str, answer: Sequence[Mapping[str, Any]], write: Write) -> None:
    """Writes the longest queues one by one. Queues with the same name, as temporary ones may have, count as one."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for queue in answer:
        alike.setdefault(queue["name"], []).append(queue)
    summed = {name: _sums(rows) for name, rows in alike.items()}
    for name, sums in sorted(summed.items(), key=lambda one: (-one[1]["size"], one[0]))[:ROWS_MAX]:
        totals = {f"{name}.{number}": f"{query}.{number}" for number in sums}
        write(at_us, query, None, {f"{name}.{number}": value for number, value in sums.items()}, totals)


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if type(value) in (int, float)}


def _sums(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each number over all rows: the maximum of ages, the sum of others."""
    found: dict[str, Any] = {}
    for row in rows:
        for name, value in _numbers(row).items():
            if name == "connection":
                continue
            older = found.get(name, 0)
            found[name] = max(older, value) if name.endswith("_ms") else older + value
    return found
