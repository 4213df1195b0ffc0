"""Looks at a broker while it works: DIAG, and CPU and memory of processes, at an interval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from stompica.bench import procfs
from stompica.diag import DiagError, RemoteDiag, connect, plain

QUERIES = ("network", "shards", "memory", "queues", "ack", "slow", "stale", "session")
"""What is asked each time."""

STAGES = "benchmark"
"""Asking for it makes the broker time its stages."""

ROWS_MAX = 100
"""Queues of which the numbers are kept: the longest. The others are summed up."""


@dataclass
class Samples:
    """What was seen. Moments are µs since 1970."""

    processes: list[tuple[int, str, int, int, int]] = field(default_factory=list)
    """Moment, process, CPU µs, resident bytes, threads."""
    answers: list[tuple[int, str, Any]] = field(default_factory=list)
    """Moment, query, answer as JSON has it."""
    faults: list[str] = field(default_factory=list)
    """What could not be asked, each once."""


class Sampler:
    """A thread that samples until its `with` block ends; then `samples` is whole.

    `processes` are ids by name; they may be added while it runs.
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
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
                    return  # the next would only take as long to fail

    def take_samples(self) -> Samples:
        """What was seen since the last call; faults are those of the whole time."""
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
"""Moment, query, shard, numbers, and the totals, by name, of the numbers that are parts of one."""

_SHARD_TOTALS = {
    "connections": "network.connections",
    "subscriptions": "session.subscriptions",
    "queues": "queues.queues",
    "frames_in": "network.frames_in",
    "deliveries": "network.deliveries",
}
"""What else tells the sum over the shards. The others' sum is told by nothing else, and has the name of `shards`."""


class Stages:
    """Turns the growing histograms of `benchmark` into what was added since the answer before."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[tuple[int, int], int]] = {}

    def since(self, answer: Mapping[str, Any]) -> dict[str, list[tuple[int, int, int]]]:
        """Buckets `low_ns, high_ns, count` of each stage; a broker that began anew counts from nothing.

        `turn`, which holds all others, is left out.
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
    """Gives an answer's numbers to `write`: shards one by one, rows of lists by name or summed up."""
    if query == "shards":
        for shard in answer:
            numbers = {name: value for name, value in shard.items() if name != "shard"}
            added = (name for name in numbers if not name.startswith("max_"))  # the greatest do not add up
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
    """The longest queues one by one. Queues that are shown alike, as temporary ones may be, are one."""
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
    """Each number over all rows: the greatest of ages, the sum of others."""
    found: dict[str, Any] = {}
    for row in rows:
        for name, value in _numbers(row).items():
            if name == "connection":
                continue
            older = found.get(name, 0)
            found[name] = max(older, value) if name.endswith("_ms") else older + value
    return found
