"""Times that a broker has measured, as DIAG reports them: histograms with units in their names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """Number of passes that took at least `low_ns` and less than `high_ns`."""

    low_ns: int
    """Lower bound of the bucket, inclusive."""
    high_ns: int
    """Upper bound of the bucket, exclusive."""
    count: int
    """Passes."""


@dataclass(frozen=True)
class Stage:
    """Timing of one stage of the broker over all threads; except for `turn`, nested stages are not included."""

    count: int
    """Timed passes."""
    total_ns: int
    """Total time of these passes."""
    buckets: tuple[Bucket, ...] = ()
    """Histogram of the passes, without empty buckets."""

    @property
    def mean_ns(self) -> float:
        """Mean time of a pass; 0 if there was none."""
        return self.total_ns / self.count if self.count else 0.0

    def quantile_ns(self, q: float) -> int:
        """`high_ns` of the bucket that contains the quantile `q` (0 to 1); 0 if there was no pass."""
        passed, wanted = 0, q * sum(bucket.count for bucket in self.buckets)
        for bucket in self.buckets:
            passed += bucket.count
            if passed >= wanted:
                return bucket.high_ns
        return 0


NEVER = Stage(0, 0)
"""Times of something that was never done."""
