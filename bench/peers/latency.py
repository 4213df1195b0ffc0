"""Latencies of the byte-counting generator: from the write of a message's batch to its delivery.

They have the meaning and the format of the load generator's `window_latency`: the publisher waits for its slowest
subscriber, so they include the queueing that the window allows.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from typing import Any

BATCHES_MAX = 2048
"""When a publisher has this many batches, the older half is dropped. A window holds far fewer."""

EXACT_BITS = 8
"""Buckets are those of `stompica.recording.histogram`, which is not imported here, since it imports pyarrow."""


class WindowLatency:
    """Counts latencies in whole µs. Times are ns of one clock."""

    def __init__(self, publishers: int) -> None:
        self._batches: list[list[tuple[int, int]]] = [[] for _ in range(publishers)]
        self._current: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._intervals: list[dict[str, Any]] = []

    def writing(self, publisher: int, end: int, now_ns: int) -> None:
        """A publisher starts to write its messages up to number `end`."""
        batches = self._batches[publisher]
        if len(batches) >= BATCHES_MAX:
            del batches[: BATCHES_MAX // 2]
        batches.append((end, now_ns))

    def arrived(self, publisher: int, first: int, end: int, now_ns: int) -> None:
        """Messages `first` to `end` - 1 of a publisher have arrived at one subscriber."""
        batches = self._batches[publisher]
        for place in range(bisect.bisect_right(batches, (first, math.inf)), len(batches)):
            if first >= end:
                break
            batch_end, at_ns = batches[place]
            self._current[(now_ns - at_ns) // 1000] += min(batch_end, end) - first
            first = batch_end

    def forget(self) -> None:
        """Drops what was counted so far: it was warm-up."""
        self._current.clear()

    def end_interval(self, at_us: int, duration_us: int) -> None:
        """Ends an interval; `at_us` is its start, relative to the start of the repetition."""
        if self._current:
            buckets = _buckets(self._current)
            self._intervals.append({"at_us": at_us, "duration_us": duration_us, "window_us": buckets})
            self._whole.update(self._current)
            self._current.clear()

    def result(self) -> dict[str, Any]:
        """Percentiles and intervals, in the load generator's format."""
        values, count = sorted(self._whole), self._whole.total()
        figures = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
        whole: dict[str, Any] = {name: _quantile(self._whole, values, count, part) for name, part in figures.items()}
        return {"from_batch": {**whole, "count": count}, "intervals": self._intervals}


def _quantile(counts: Counter[int], values: list[int], count: int, part: float) -> float:
    """The lowest value that at least this share of all values does not exceed."""
    left = math.ceil(part * count)
    for value in values:
        left -= counts[value]
        if left <= 0:
            return float(value)
    return 0.0


def _buckets(counts: Counter[int]) -> list[tuple[int, int]]:
    """Upper bound and count of each bucket that is not empty."""
    found: Counter[int] = Counter()
    for value, count in counts.items():
        shift = max(value.bit_length() - EXACT_BITS, 0)
        found[((value >> shift) + 1 << shift) - 1] += count
    return sorted(found.items())
