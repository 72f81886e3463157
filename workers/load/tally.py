"""What is kept of a load that is too large to keep every request: histograms of each stream, stage and client, and how evenly
they were served. All of it adds up over shards; `workers.load.tallied` makes the measures of it.

Counts, sums, smallest and largest values are exact; percentiles are within `histogram.ERROR` of those of the requests themselves.
Pure but for the records that it reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from workers.analysis.requests import Limits, Times
from workers.load.histogram import ERROR, Histogram
from workers.load.planned import Planned
from workers.load.runner import Record
from workers.load.service import Service
from workers.load.timing import durations

type Json = dict[str, Any]
type Key = tuple[str, int, str]  # stream, stage, client
type Ends = tuple[float, float]

RAW_MOST = 20_000  # requests of a block up to which each is kept
TIMED = ("ttft", "e2e", "tpot", "itl")
NO_ENDS: Ends = (math.inf, -math.inf)


def kept_every(requests: int) -> int:
    """1: every request is kept. Above RAW_MOST every so-manieth one by its number is, and the rest is in the tally."""
    return math.ceil(requests / RAW_MOST)


def times_of(record: Record, shift_s: float = 0.0) -> Times:
    """`shift_s` brings moments onto another clock."""
    request, answer = record.request, record.answer
    return Times(
        stream=request.stream,
        outcome=answer.outcome,
        sent_at=answer.sent_at + shift_s,
        done_at=None if answer.done_at is None else answer.done_at + shift_s,
        ttft_s=None if answer.first_token_at is None else answer.first_token_at - answer.sent_at,
        e2e_s=None if answer.done_at is None else answer.done_at - answer.sent_at,
        gaps=tuple(after - before for before, after in pairwise(answer.chunks)),
        n_generated=answer.n_generated,
        n_prompt=answer.n_prompt,
        n_cached=answer.n_cached,
        stage=request.stage,
        client=request.client or "",
        wait_s=durations(answer).wait_s,
    )


class Part:
    """Of one client's requests to one stream in one stage."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.good = self.generated = 0
        self.ends = self.ok_ends = NO_ENDS
        self.times = {name: Histogram() for name in TIMED}
        self.service: Service | None = Service()

    def add(self, row: Times, limits: Limits | None) -> None:
        self.outcomes[row.outcome] += 1
        self.good += limits is not None and limits.met(row)
        self.generated += row.n_generated or 0
        self.ends = _wider(self.ends, (row.sent_at, -math.inf if row.done_at is None else row.done_at))
        if self.service is not None:
            self.service.add(row)
        if row.ok:
            self.ok_ends = _wider(self.ok_ends, (row.sent_at, row.done_at or row.sent_at))
            for name, value in (("ttft", row.ttft_s), ("e2e", row.e2e_s), ("tpot", row.tpot_s)):
                if value is not None:
                    self.times[name].add(value)
            for gap in row.gaps:
                self.times["itl"].add(gap)

    def merge(self, other: Part) -> None:
        self.outcomes += other.outcomes
        self.good += other.good
        self.generated += other.generated
        self.ends, self.ok_ends = _wider(self.ends, other.ends), _wider(self.ok_ends, other.ok_ends)
        for name in TIMED:
            self.times[name].merge(other.times[name])
        if self.service is None or other.service is None:
            self.service = None
        else:
            self.service.merge(other.service)

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    @property
    def ok(self) -> int:
        return self.outcomes["ok"]

    @property
    def span(self) -> float:
        """Seconds from the first one sent to the last one done."""
        return _length(self.ends)

    @property
    def ok_rate(self) -> float | None:
        """Answered requests a second, over the time in which they were; None of none."""
        length = _length(self.ok_ends)
        return (self.ok / length if length else 0.0) if self.ok else None

    def rate(self, count: float) -> float:
        return count / self.span if self.span else 0.0

    def as_json(self) -> Json:
        counts = {"outcomes": dict(self.outcomes), "good": self.good, "generated": self.generated}
        ends = {"ends": _told(self.ends), "ok_ends": _told(self.ok_ends)}
        service = None if self.service is None else self.service.as_json()
        return {**counts, **ends, "times": {name: each.as_json() for name, each in self.times.items()}, "service": service}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Part:
        """Also of runs that were kept before fairness was: their service is unknown."""
        found = cls()
        found.outcomes = Counter(given["outcomes"])
        found.good, found.generated = int(given["good"]), int(given["generated"])
        found.ends = _ends(given["ends"])
        found.ok_ends = _ends(given.get("ok_ends", given["ends"]))
        found.times = {name: Histogram.of_json(given["times"][name]) for name in TIMED}
        found.service = Service.of_json(service) if (service := given.get("service")) is not None else None
        return found


def _wider(one: Ends, other: Ends) -> Ends:
    return min(one[0], other[0]), max(one[1], other[1])


def _length(ends: Ends) -> float:
    return max(0.0, ends[1] - ends[0]) if math.isfinite(ends[0]) and math.isfinite(ends[1]) else 0.0


def _told(ends: Ends) -> list[float | None]:
    return [each if math.isfinite(each) else None for each in ends]


def _ends(given: Any) -> Ends:
    first, last = given
    return math.inf if first is None else float(first), -math.inf if last is None else float(last)


class Tally:
    """Parts by stream, stage and client ("" for those without a label). Only counted requests go in."""

    def __init__(self, parts: Mapping[Key, Part] | None = None) -> None:
        self.parts: dict[Key, Part] = dict(parts or {})

    def add(self, request: Planned, row: Times, limits: Limits | None) -> None:
        self.parts.setdefault((request.stream, request.stage, row.client), Part()).add(row, limits)

    def merge(self, other: Tally) -> None:
        for key, each in other.parts.items():
            self.parts.setdefault(key, Part()).merge(each)

    def of(self, *, stream: str | None = None, stage: int | None = None, client: str | None = None) -> Part:
        """The parts of these, of all with None, as one."""
        wanted, found = (stream, stage, client), Part()
        for key, each in self.parts.items():
            if all(asked is None or asked == name for asked, name in zip(wanted, key, strict=True)):
                found.merge(each)
        return found

    def as_json(self) -> Json:
        rows = [
            {"stream": stream, "stage": stage, "client": client, **each.as_json()}
            for (stream, stage, client), each in self.parts.items()
        ]
        return {"error": ERROR, "parts": rows}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Tally:
        return cls({(row["stream"], row["stage"], row.get("client", "")): Part.of_json(row) for row in given.get("parts", ())})
