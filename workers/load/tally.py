"""What is kept of a load that is too large to keep every request: histograms of each stream and stage, which add up over shards.

Counts, sums, smallest and largest values are exact; percentiles are within `histogram.ERROR` of those of the requests themselves.
Pure but for the records that it reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from workers.analysis.load import FEW, MANY, BlockLoad, Limits, StageRow, Times
from workers.load.histogram import ERROR, Histogram
from workers.load.planned import Planned
from workers.load.runner import Record

type Json = dict[str, Any]

RAW_MOST = 20_000  # requests of a block up to which each is kept
TIMED = ("ttft", "e2e", "tpot", "itl")


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
        stage=request.stage,
    )


class Part:
    """Of one stream in one stage."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.good = self.generated = 0
        self.first, self.last = math.inf, -math.inf
        self.times = {name: Histogram() for name in TIMED}

    def add(self, row: Times, limits: Limits | None) -> None:
        self.outcomes[row.outcome] += 1
        self.good += limits is not None and limits.met(row)
        self.generated += row.n_generated or 0
        self.first = min(self.first, row.sent_at)
        self.last = max(self.last, row.sent_at if row.done_at is None else row.done_at)
        if row.ok:
            for name, value in (("ttft", row.ttft_s), ("e2e", row.e2e_s), ("tpot", row.tpot_s)):
                if value is not None:
                    self.times[name].add(value)
            for gap in row.gaps:
                self.times["itl"].add(gap)

    def merge(self, other: Part) -> None:
        self.outcomes += other.outcomes
        self.good += other.good
        self.generated += other.generated
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        for name in TIMED:
            self.times[name].merge(other.times[name])

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    @property
    def span(self) -> float:
        return max(0.0, self.last - self.first) if self.requests else 0.0

    def rate(self, count: float) -> float:
        return count / self.span if self.span else 0.0

    def as_json(self) -> Json:
        ends = (self.first, self.last) if self.requests else (None, None)
        counts = {"outcomes": dict(self.outcomes), "good": self.good, "generated": self.generated, "ends": ends}
        return {**counts, "times": {name: each.as_json() for name, each in self.times.items()}}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Part:
        found = cls()
        found.outcomes = Counter(given["outcomes"])
        found.good, found.generated = int(given["good"]), int(given["generated"])
        first, last = given["ends"]
        if first is not None:
            found.first, found.last = float(first), float(last)
        found.times = {name: Histogram.of_json(given["times"][name]) for name in TIMED}
        return found


class Tally:
    """Parts by stream and stage. Only counted requests go in."""

    def __init__(self, parts: Mapping[tuple[str, int], Part] | None = None) -> None:
        self.parts: dict[tuple[str, int], Part] = dict(parts or {})

    def add(self, request: Planned, row: Times, limits: Limits | None) -> None:
        self.parts.setdefault((request.stream, request.stage), Part()).add(row, limits)

    def merge(self, other: Tally) -> None:
        for key, each in other.parts.items():
            self.parts.setdefault(key, Part()).merge(each)

    def of(self, streams: Iterable[str] | None = None) -> Part:
        """All parts of these streams, of all with None, as one."""
        found = Part()
        for (stream, _), each in self.parts.items():
            if streams is None or stream in streams:
                found.merge(each)
        return found

    def as_json(self) -> Json:
        rows = [{"stream": stream, "stage": stage, **each.as_json()} for (stream, stage), each in self.parts.items()]
        return {"error": ERROR, "parts": rows}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Tally:
        return cls({(row["stream"], row["stage"]): Part.of_json(row) for row in given.get("parts", ())})


def block_load(tally: Tally, limited: Iterable[str]) -> BlockLoad:
    """The measures of one block, as `workers.analysis.load.block_load` has them of the requests themselves."""
    limited, values = set(limited), {}
    streams = list(dict.fromkeys(stream for stream, _ in tally.parts))
    parts = {stream: tally.of([stream]) for stream in streams}
    for stream, each in parts.items():
        for name, value in _values(each).items():
            values[stream, name] = value
        if stream in limited:
            values[stream, "goodput"] = each.rate(each.good)
    whole = tally.of()
    if whole.span:
        values["", "makespan"] = whole.span
        values["", "throughput"] = whole.rate(whole.generated)
    outcomes = {stream: dict(each.outcomes) for stream, each in parts.items()}
    return BlockLoad(values, outcomes, {stream: each.outcomes["ok"] for stream, each in parts.items()})


def _values(part: Part) -> dict[str, float]:
    found: dict[str, float | None] = {}
    for name, each in part.times.items():
        found[f"{name}_p50"] = each.percentile(0.5)
        found[f"{name}_mean"] = each.mean
        found[f"{name}_p95"] = each.percentile(0.95) if each.n >= FEW else None
        found[f"{name}_p99"] = each.percentile(0.99) if each.n >= MANY else None
        found[f"{name}_max"] = each.high if each.n > 1 else None
    return {name: value for name, value in found.items() if value is not None}


def stage_rows(tally: Tally, limited: Iterable[str]) -> list[StageRow]:
    """Levels in their order, for streams that have more than one."""
    limited, found = set(limited), []
    for stream in dict.fromkeys(stream for stream, _ in tally.parts):
        levels = sorted(stage for each, stage in tally.parts if each == stream)
        for stage in levels if len(levels) > 1 else ():
            part = tally.parts[stream, stage]
            ok, good = part.outcomes["ok"], part.good if stream in limited else None
            ttft, e2e = (part.times[name].percentile(0.5) for name in ("ttft", "e2e"))
            found.append(StageRow(stream, stage, part.requests, ok, good, part.rate(ok) if ok else None, ttft, e2e))
    return found
