"""What a load of many requests shows: measures of each stream in a block, and how the arms compare over pairs. Pure.

Definitions stand in docs/metrics.md. Only requests that count (`Times` of them are given here) and that ended well have times;
the others have an outcome. Nothing is made of nothing: a measure without values is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.analysis.numbers import percentile
from workers.analysis.numbers import spread as spread_of
from workers.analysis.paired import paired_ratio
from workers.analysis.summary import Measure

BEHIND_S = 0.010
FEW, MANY = 20, 100  # requests from which on a 95th and a 99th percentile say more than the largest value

type Key = tuple[str, str]  # stream ("" for the whole block), measure


@dataclass(frozen=True, slots=True)
class Times:
    """One request, seconds; None where a stage was not reached. `gaps`: between tokens, as the client read them.

    `n_generated` counts its tokens, by whoever said so.
    """

    stream: str
    outcome: str
    sent_at: float
    done_at: float | None
    ttft_s: float | None
    e2e_s: float | None
    gaps: tuple[float, ...] = ()
    n_generated: int | None = None
    n_prompt: int | None = None
    n_cached: int | None = None
    dispatch_s: float | None = None
    stage: int = 0

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (generated tokens - 1), from two tokens on."""
        if self.e2e_s is None or self.ttft_s is None or self.n_generated is None or self.n_generated < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.n_generated - 1)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request, in seconds; `itl_s` bounds its largest gap."""

    ttft_s: float | None = None
    itl_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def met(self, times: Times) -> bool:
        """A limit on something that was not measured is not met."""
        pairs = (
            (self.ttft_s, times.ttft_s),
            (self.itl_s, max(times.gaps, default=0.0)),
            (self.tpot_s, times.tpot_s if times.n_generated is None or times.n_generated > 1 else 0.0),
            (self.e2e_s, times.e2e_s),
        )
        return times.ok and all(limit is None or (value is not None and value <= limit) for limit, value in pairs)


@dataclass(frozen=True, slots=True)
class StageRow:
    """One level of a sweep or of a rate in stages."""

    stream: str
    stage: int
    requests: int
    ok: int
    good: int | None
    rate: float | None  # answered requests a second, from the first sent to the last done
    ttft_s: float | None
    e2e_s: float | None


@dataclass(frozen=True, slots=True)
class BlockLoad:
    values: Mapping[Key, float]
    outcomes: Mapping[str, Mapping[str, int]]
    counts: Mapping[str, int] = field(default_factory=dict)


LABELS = {"ttft": "TTFT", "e2e": "E2E", "tpot": "TPOT", "itl": "ITL"}
WORDS = {"p50": "median", "p95": "95th percentile", "p99": "99th percentile", "max": "largest"}
WHOLE = {"makespan": "All done", "throughput": "Generated tokens a second"}


def block_load(rows: Sequence[Times], limits: Mapping[str, Limits]) -> BlockLoad:
    """The measures of one block, by stream and as a whole."""
    values: dict[Key, float] = {}
    outcomes: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for stream in dict.fromkeys(row.stream for row in rows):
        mine = [row for row in rows if row.stream == stream]
        outcomes[stream] = dict(Counter(row.outcome for row in mine))
        good = [row for row in mine if row.ok]
        counts[stream] = len(good)
        for name, data in _samples(good).items():
            for word, value in _points(data).items():
                values[stream, f"{name}_{word}"] = value
        if stream in limits and mine:
            values[stream, "goodput"] = _rate(mine, sum(limits[stream].met(row) for row in mine))
    if span := _span(rows):
        values["", "makespan"] = span
        values["", "throughput"] = sum(row.n_generated or 0 for row in rows) / span
    return BlockLoad(values, outcomes, counts)


def _samples(rows: Sequence[Times]) -> dict[str, list[float]]:
    return {
        "ttft": [row.ttft_s for row in rows if row.ttft_s is not None],
        "e2e": [row.e2e_s for row in rows if row.e2e_s is not None],
        "tpot": [tpot for row in rows if (tpot := row.tpot_s) is not None],
        "itl": [gap for row in rows for gap in row.gaps],
    }


def _points(data: Sequence[float]) -> dict[str, float]:
    if not data:
        return {}
    points = {"p50": percentile(data, 0.5)}
    if len(data) >= FEW:
        points["p95"] = percentile(data, 0.95)
    if len(data) >= MANY:
        points["p99"] = percentile(data, 0.99)
    return points if len(data) == 1 else {**points, "max": max(data)}


def _span(rows: Sequence[Times]) -> float | None:
    """Seconds from the first one sent to the last one done."""
    ends = [row.done_at for row in rows if row.done_at is not None]
    span = max(ends) - min(row.sent_at for row in rows) if ends else 0.0
    return span if span > 0 else None


def _rate(rows: Sequence[Times], count: int) -> float:
    span = _span(rows)
    return count / span if span else 0.0


def compare(pairs: Sequence[tuple[BlockLoad, BlockLoad]]) -> list[Measure]:
    """Of each measure that both blocks of some pair have: medians of both arms, and the paired ratio of B to A."""
    keys = dict.fromkeys(key for a, b in pairs for key in a.values if key in b.values)
    found = []
    for key in sorted(keys, key=lambda key: (key[0] == "", list(keys).index(key))):
        both = [(a.values[key], b.values[key]) for a, b in pairs if key in a.values and key in b.values]
        a, b = [value for value, _ in both], [value for _, value in both]
        found.append(Measure(name_of(key), label_of(key), spread_of(a), spread_of(b), paired_ratio(a, b)))
    return found


def name_of(key: Key) -> str:
    return f"{key[0]}.{key[1]}" if key[0] else key[1]


def label_of(key: Key) -> str:
    stream, measure = key
    if not stream:
        return WHOLE[measure]
    if measure == "goodput":
        return f"{stream}: goodput"
    name, word = measure.split("_")
    return f"{stream}: {LABELS[name]}, {WORDS[word]}"


def unit_of(name: str) -> str:
    return "1/s" if name.endswith(("goodput", "throughput")) else "s"


def stage_rows(rows: Sequence[Times], limits: Mapping[str, Limits]) -> list[StageRow]:
    """Levels in their order, for streams that have more than one."""
    found = []
    for stream in dict.fromkeys(row.stream for row in rows):
        levels = sorted({row.stage for row in rows if row.stream == stream})
        for level in levels if len(levels) > 1 else ():
            mine = [row for row in rows if row.stream == stream and row.stage == level]
            ok = [row for row in mine if row.ok]
            points = {name: _points(data).get("p50") for name, data in _samples(ok).items()}
            good = sum(limits[stream].met(row) for row in mine) if stream in limits else None
            found.append(
                StageRow(
                    stream, level, len(mine), len(ok), good, _rate(ok, len(ok)) if ok else None, points["ttft"], points["e2e"]
                )
            )
    return found


def saturation(stages: Sequence[StageRow], share: float = 0.9) -> StageRow | None:
    """The last level up to which, unbroken, at least `share` of the requests met their limits; None: not the first either."""
    last = None
    for row in stages:
        if row.good is None or row.good < share * row.requests:
            break
        last = row
    return last


def behind_sentence(delays: Sequence[float]) -> str:
    """Empty while the generator kept its own schedule: 99 of 100 requests within 10 ms of their moment."""
    if not delays or (late := percentile(delays, 0.99)) <= BEHIND_S:
        return ""
    told = f"the generator was behind: the 99th percentile of its dispatch delay is {late * 1000:.0f} ms"
    return f"{told}, so a user would have waited that much longer than the times from sending say."
