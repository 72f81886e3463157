"""Time comes in as an argument: a clock that follows the machine, and one that moves only when told to."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the Unix epoch; never goes back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    """Monotonic time, laid on the Unix epoch once at the start so that it can be shown as a time of day."""

    def __init__(self) -> None:
        self._offset = time.time() - time.perf_counter()

    def now(self) -> float:
        return self._offset + time.perf_counter()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class VirtualClock:
    """Moves by `sleep` alone: hours of traffic in milliseconds, the same at every run."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(0.0, seconds)
