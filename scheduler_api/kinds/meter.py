"""Rates from counters: what one grew by over the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from scheduler_api.figures import RATE_WINDOW_S


@dataclass(slots=True)
class Meter:
    """Of one counter that only grows. After a restart it begins anew: no difference is taken across one."""

    window_s: float = RATE_WINDOW_S
    samples: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, t: float, total: float | None) -> None:
        if total is None or (self.samples and total < self.samples[-1][1]):
            self.samples.clear()
        if total is not None:
            self.samples.append((t, total))
        while len(self.samples) > 2 and self.samples[1][0] <= t - self.window_s:
            self.samples.popleft()

    @property
    def last(self) -> float | None:
        return self.samples[-1][1] if self.samples else None

    def rate(self) -> float | None:
        """Per second, over the window or as much of it as was seen; None before two samples."""
        if len(self.samples) < 2:
            return None
        (start, before), (end, now) = self.samples[0], self.samples[-1]
        return None if end <= start else round((now - before) / (end - start), 1)

    def grown(self) -> float | None:
        """By how much over the window; None before two samples."""
        return None if len(self.samples) < 2 else self.samples[-1][1] - self.samples[0][1]
