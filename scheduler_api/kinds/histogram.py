"""Percentiles of the last seconds from a histogram's counters. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler_api.kinds.fields import Json

WINDOW_S = 60.0
_STEP_S = 2.0
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: (upper bound, observations up to it), bounds rising to infinity.
type Buckets = tuple[tuple[float, float], ...]


def quantile(buckets: Buckets, q: float) -> float | None:
    """The value below which the share `q` of the observations lies; None without observations.

    Linear within a bucket, whose lower bound is the one before it, or 0. What lies in the last, unbounded bucket is told as
    that bucket's lower bound, so it is at least that. These are the rules of Prometheus' histogram_quantile.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    rank = q * buckets[-1][1]
    lower, below = 0.0, 0.0
    for upper, upto in buckets:
        if upto >= rank and upto > below:
            return lower if math.isinf(upper) else lower + (upper - lower) * (rank - below) / (upto - below)
        lower, below = (lower if math.isinf(upper) else upper), upto
    return lower


def since(before: Buckets, now: Buckets) -> Buckets | None:
    """What was observed in between; None when the bounds differ or a counter went back."""
    if [bound for bound, _ in before] != [bound for bound, _ in now]:
        return None
    grown = tuple((bound, count - old) for (bound, count), (_, old) in zip(now, before, strict=True))
    return grown if all(count >= 0 for _, count in grown) else None


@dataclass(slots=True)
class Window:
    """Snapshots of one histogram over the last WINDOW_S: the newest, and before it one in _STEP_S at most."""

    snapshots: deque[tuple[float, Buckets]] = field(default_factory=deque)

    def add(self, t: float, buckets: Buckets) -> None:
        if self.snapshots and since(self.snapshots[-1][1], buckets) is None:
            self.snapshots.clear()
        if len(self.snapshots) > 1 and self.snapshots[-1][0] - self.snapshots[-2][0] < _STEP_S:
            self.snapshots.pop()
        self.snapshots.append((t, buckets))
        while len(self.snapshots) > 2 and self.snapshots[1][0] <= t - WINDOW_S:
            self.snapshots.popleft()

    def told(self) -> Json | None:
        """{"p50", "p95", "p99" (seconds), "n" (observations), "over_s"}; None when nothing was observed in the window."""
        if len(self.snapshots) < 2:
            return None
        (start, before), (end, now) = self.snapshots[0], self.snapshots[-1]
        grown = since(before, now)
        if not grown or grown[-1][1] <= 0:
            return None
        found = {name: _rounded(quantile(grown, q)) for name, q in PERCENTILES.items()}
        return found | {"n": int(grown[-1][1]), "over_s": round(end - start, 1)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def buckets_of(pairs: Sequence[tuple[str, float | None]]) -> Buckets:
    """From (label `le`, count) pairs; () unless they end with the unbounded one."""
    found = sorted((float(bound), count) for bound, count in pairs if count is not None and _is_bound(bound))
    return tuple(found) if found and math.isinf(found[-1][0]) else ()


def _is_bound(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
