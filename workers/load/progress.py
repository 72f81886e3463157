"""How far a load is: counted while it is sent, cheap to write down, and added up over shards.

The loop of the generator counts; another thread takes snapshots. Each count is written by the loop alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from workers.load.histogram import Histogram
from workers.load.planned import Planned
from workers.load.reading import Outcome
from workers.load.runner import Record

type Json = dict[str, Any]

OVER_S = 4.0  # the stretch before a snapshot over which its rate is taken


class Progress:
    """Counts of one block's load in this process."""

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self._sent = self._done = self._failed = 0
        self._ttft = Histogram()
        self._before: deque[tuple[float, int]] = deque()

    # -- by the loop --------------------------------------------------------------------------------------------------

    def sent(self, _: Planned) -> None:
        self._sent += 1

    def first_token(self, ttft_s: float) -> None:
        self._ttft.add(ttft_s)

    def ended(self, record: Record) -> None:
        self._done += 1
        if record.answer.outcome not in (Outcome.OK, Outcome.CANCELLED, Outcome.SKIPPED):
            self._failed += 1

    # -- by the thread that writes it down ----------------------------------------------------------------------------

    def snapshot(self, now: float) -> Json:
        """Figures as pages read them, with the histogram from which those of several shards are made. `now`: Unix seconds."""
        done = self._done
        while len(self._before) > 1 and self._before[1][0] <= now - OVER_S:
            self._before.popleft()
        then, before = self._before[0] if self._before else (now, done)
        self._before.append((now, done))
        rate = (done - before) / (now - then) if now > then else 0.0
        counts = {"planned": self._planned, "sent": self._sent, "done": done, "failed": self._failed}
        ttft = self._ttft.copy()
        return {**counts, "rate_per_s": rate, "at": now, **_times(ttft), "ttft": ttft.as_json()}


def merged(parts: Sequence[Json]) -> Json:
    """One snapshot out of those of all shards; `parts` must not be empty."""
    ttft = Histogram()
    for each in parts:
        ttft.merge(Histogram.of_json(each["ttft"]))
    sums = {name: sum(each[name] for each in parts) for name in ("planned", "sent", "done", "failed", "rate_per_s")}
    return {**sums, "at": max(each["at"] for each in parts), **_times(ttft), "ttft": ttft.as_json()}


def _times(ttft: Histogram) -> Json:
    return {"ttft_p50_s": ttft.percentile(0.5), "ttft_p95_s": ttft.percentile(0.95)}
