"""What a load of many requests shows: measures of each stream in a block, and how the arms compare over pairs. Pure.

Definitions stand in docs/metrics.md. Only requests that count (`Times` of them are given here) and that ended well have times;
the others have an outcome. Nothing is made of nothing: a measure without values is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from workers.analysis.differences import largest_departure, paired_difference
from workers.analysis.fair import fairness
from workers.analysis.naming import CLIENT, Key, Name, name_of
from workers.analysis.numbers import percentile
from workers.analysis.numbers import spread as spread_of
from workers.analysis.paired import paired_ratio
from workers.analysis.requests import Limits, Times, grouped
from workers.analysis.summary import WAIT_FLOOR_S, Measure

__all__ = ["BlockLoad", "Limits", "StageRow", "Times", "block_load", "compare", "saturation", "stage_rows"]

BEHIND_S = 0.010
FEW, MANY = 20, 100  # requests from which on a 95th and a 99th percentile say more than the largest value


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


def block_load(rows: Sequence[Times], limits: Mapping[str, Limits], alone: Mapping[str, float] | None = None) -> BlockLoad:
    """The measures of one block, by stream, by client and as a whole. `alone`: E2E of a request of each stream by itself."""
    values: dict[Key, float] = {}
    outcomes: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for stream, mine in grouped(rows, lambda row: row.stream).items():
        outcomes[stream] = dict(Counter(row.outcome for row in mine))
        counts[stream] = sum(row.ok for row in mine)
        values |= {(stream, name): value for name, value in _of_group(mine, limits).items()}
    for client, mine in grouped(rows, lambda row: row.client).items():
        if client:
            values |= {(f"{CLIENT}{client}", name): value for name, value in _of_group(mine, limits).items()}
    if span := _span(rows):
        values["", "makespan"] = span
        values["", "throughput"] = sum(row.n_generated or 0 for row in rows) / span
        values["", "requests"] = sum(row.ok for row in rows) / span
    return BlockLoad({**values, **fairness(rows, alone or {})}, outcomes, counts)


def _of_group(rows: Sequence[Times], limits: Mapping[str, Limits]) -> dict[str, float]:
    """Of a stream's or a client's requests."""
    good = [row for row in rows if row.ok]
    found = {f"{name}_{word}": value for name, data in _samples(good).items() for word, value in _points(data).items()}
    if any(row.stream in limits for row in rows):
        met = sum(row.ok if row.stream not in limits else limits[row.stream].met(row) for row in rows)
        found["goodput"] = _rate(rows, met)
    if good and len(rows) > 1:
        found["throughput"] = _rate(rows, sum(row.n_generated or 0 for row in rows))
        found["requests"] = _rate(rows, len(good))
    return found


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
    points = {"mean": fsum(data) / len(data), "p50": percentile(data, 0.5)}
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


def compare(
    pairs: Sequence[tuple[BlockLoad, BlockLoad]],
    floor: Sequence[tuple[BlockLoad, BlockLoad]] = (),
    seed: int = 0,
    numbers: Sequence[int] | None = None,
) -> list[Measure]:
    """Of each measure that both blocks of some pair have: both arms, and how B differs from A over the pairs.

    `floor`: pairs of blocks with equal arms. `seed`: of the bootstrap. `numbers`: of the pairs; 1, 2, ... without them. What is
    of the whole block comes last.
    """
    numbers = range(1, len(pairs) + 1) if numbers is None else numbers
    keys = list(dict.fromkeys(key for a, b in pairs for key in a.values if key in b.values))
    found = []
    for key in sorted(keys, key=lambda key: key[0] == ""):
        points = tuple(
            (number, a.values[key], b.values[key])
            for number, (a, b) in zip(numbers, pairs, strict=True)
            if key in a.values and key in b.values
        )
        equal = [(a.values[key], b.values[key]) for a, b in floor if key in a.values and key in b.values]
        found.append(_measure(name_of(key), points, equal, seed))
    return found


def _measure(
    name: Name, points: tuple[tuple[int, float, float], ...], equal: Sequence[tuple[float, float]], seed: int
) -> Measure:
    a, b = [a for _, a, _ in points], [b for _, _, b in points]
    noise = largest_departure([a for a, _ in equal], [b for _, b in equal])
    least = WAIT_FLOOR_S if name.metric in ("wait", "oldest_wait") else 0.0
    ratio, difference = paired_ratio(a, b, least), paired_difference(a, b, seed)
    return Measure(name.key, name.label, spread_of(a), spread_of(b), ratio, name, difference, points, noise)


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
