"""Histograms with a bounded relative error: HDR buckets over integers, sparse, mergeable without loss.

Values below 2^`digits_bits` have a bucket each; above, every power of two is cut into 2^(`digits_bits` - 1) buckets of
equal width. With the default of 8 bits a bucket is at most 1/128 of its value wide. Histograms are merged by adding the
counts of equal buckets, which is exact and independent of the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PRECISION_BITS = 8
"""The resolution is 1 in 2^(PRECISION_BITS - 1) of a value."""


@dataclass(frozen=True, order=True)
class Bucket:
    """`count` values from `low` to `high`, both inclusive."""

    low: int
    high: int
    count: int


def bounds(value: int) -> tuple[int, int]:
    """Lowest and highest value of the bucket that contains `value`; negative values count as 0."""
    value = max(value, 0)
    shift = max(value.bit_length() - PRECISION_BITS, 0)
    low = value >> shift << shift
    return low, low + (1 << shift) - 1


class Histogram:
    """Counts integers, such as latencies in µs."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def record(self, value: int, count: int = 1) -> None:
        """Counts `value`, `count` times."""
        key = bounds(value)
        self._counts[key] = self._counts.get(key, 0) + count

    def record_all(self, values: Iterable[int]) -> None:
        """Counts each of `values` once."""
        for value in values:
            self.record(value)

    def merge(self, other: Histogram) -> None:
        """Adds the counts of `other`."""
        for key, count in other._counts.items():
            self._counts[key] = self._counts.get(key, 0) + count

    def __len__(self) -> int:
        """Number of values counted."""
        return sum(self._counts.values())

    def __iter__(self) -> Iterator[Bucket]:
        """The non-empty buckets, by value."""
        for (low, high), count in sorted(self._counts.items()):
            yield Bucket(low, high, count)


def quantile(buckets: Iterable[Bucket], q: float) -> int:
    """The nearest-rank quantile: the lowest `high` that a share of at least `q` of all values does not exceed.

    For buckets of width one, such as raw values, this is the exact order statistic. ValueError if nothing was counted.
    """
    ordered = sorted(buckets)
    total = sum(bucket.count for bucket in ordered)
    if total == 0:
        raise ValueError("no values were counted")
    rank = max(1, math.ceil(round(q * total, 6)))
    passed = 0
    for bucket in ordered:
        passed += bucket.count
        if passed >= rank:
            return bucket.high
    return ordered[-1].high
