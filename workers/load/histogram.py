"""Durations counted in buckets of equal ratio: small, and exact to merge. Pure.

The construction is DDSketch's (Masson, Rim and Lee, VLDB 2019): bucket i holds the values in (g^(i-1), g^i] with
g = (1 + ERROR) / (1 - ERROR), and stands for 2 g^i / (g + 1), which is within ERROR of each of them. Buckets do not depend on the
data, so histograms of several shards add up to the one that a single process would have made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

ERROR = 0.005  # relative, of every percentile
SMALLEST_S = 1e-6  # what is below, is told as 0
_RATIO = (1.0 + ERROR) / (1.0 - ERROR)
_LOG = math.log(_RATIO)


class Histogram:
    """Of values in seconds. Count, sum, smallest and largest are exact."""

    __slots__ = ("counts", "high", "low", "n", "total")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.counts: dict[int | None, int] = {}  # None: below SMALLEST_S
        self.n, self.total = 0, 0.0
        self.low, self.high = math.inf, -math.inf
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        bucket = None if value < SMALLEST_S else math.ceil(math.log(value) / _LOG)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.n += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def merge(self, other: Histogram) -> None:
        self.counts = dict(Counter(self.counts) + Counter(other.counts))
        self.n += other.n
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def copy(self) -> Histogram:
        """As it is now, also while another thread adds to it."""
        found = Histogram()
        found.counts = self.counts.copy()
        found.n, found.total, found.low, found.high = sum(found.counts.values()), self.total, self.low, self.high
        return found

    @property
    def mean(self) -> float | None:
        return self.total / self.n if self.n else None

    def percentile(self, share: float) -> float | None:
        """As `workers.analysis.numbers.percentile` (linear between the two nearest ranks), within ERROR; None of nothing."""
        if not self.n:
            return None
        place = share * (self.n - 1)
        below = math.floor(place)
        first, second = self._at(below), self._at(min(below + 1, self.n - 1))
        return min(max(first + (place - below) * (second - first), self.low), self.high)

    def _at(self, rank: int) -> float:
        seen = 0
        for bucket in sorted(self.counts, key=lambda each: -math.inf if each is None else each):
            seen += self.counts[bucket]
            if rank < seen:
                return 0.0 if bucket is None else 2.0 * _RATIO**bucket / (_RATIO + 1.0)
        return self.high

    def as_json(self) -> dict[str, Any]:
        counts = [["" if bucket is None else bucket, count] for bucket, count in self.counts.copy().items()]
        low, high = (self.low, self.high) if self.n else (None, None)
        return {"counts": counts, "sum": self.total, "min": low, "max": high}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Histogram:
        found = cls()
        found.counts = {None if bucket == "" else int(bucket): int(count) for bucket, count in given["counts"]}
        found.n = sum(found.counts.values())
        found.total = float(given["sum"])
        if found.n:
            found.low, found.high = float(given["min"]), float(given["max"])
        return found
