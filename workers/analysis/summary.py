"""From the pairs of a run to the measures of its result page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from workers.analysis.numbers import Spread, spread
from workers.analysis.paired import Ratio, Verdict, paired_ratio

# Waits shorter than this are scheduling noise of the client and the server, so a ratio of two of them says nothing.
WAIT_FLOOR_S = 0.05


@dataclass(frozen=True, slots=True)
class Times:
    """One request, in seconds: `wall` from sent to done, `wait` from sent to its first visit, `prompt` from there to its end."""

    wall: float
    wait: float
    prompt: float


@dataclass(frozen=True, slots=True)
class ArmTimes:
    """One block. `makespan`: from the first request sent to the last one done."""

    short: Times
    cold: Times
    makespan: float


@dataclass(frozen=True, slots=True)
class Pair:
    """`touched`: something foreign ran in one of its blocks; the pair counts, and the verdict is checked without it."""

    number: int
    a: ArmTimes
    b: ArmTimes
    touched: bool = False

    def arm(self, name: Literal["A", "B"]) -> ArmTimes:
        return self.a if name == "A" else self.b


@dataclass(frozen=True, slots=True)
class Measure:
    key: str
    label: str
    a: Spread | None
    b: Spread | None
    ratio: Ratio | None

    @property
    def verdict(self) -> Verdict:
        return self.ratio.verdict if self.ratio else Verdict.TOO_FEW

    @property
    def times_sooner(self) -> float | None:
        return 1.0 / self.ratio.median if self.ratio else None


class Definition(TypedDict):
    label: str
    floor: float


DEFINITIONS: dict[str, Definition] = {
    "short_wall": {"label": "Short request, E2E", "floor": 0.0},
    "short_wait": {"label": "Short request, wait", "floor": WAIT_FLOOR_S},
    "short_prompt": {"label": "Short request, prompt time", "floor": 0.0},
    "cold_wall": {"label": "Cold request, E2E", "floor": 0.0},
    "cold_prompt": {"label": "Cold request, prompt time", "floor": 0.0},
    "makespan": {"label": "Both done", "floor": 0.0},
}


def value_of(arm: ArmTimes, key: str) -> float:
    """Seconds of one measure in one block."""
    if key == "makespan":
        return arm.makespan
    role, _, what = key.partition("_")
    times = arm.short if role == "short" else arm.cold
    return {"wall": times.wall, "wait": times.wait, "prompt": times.prompt}[what]


def measure(key: str, pairs: Sequence[Pair]) -> Measure:
    a = [value_of(pair.a, key) for pair in pairs]
    b = [value_of(pair.b, key) for pair in pairs]
    definition = DEFINITIONS[key]
    return Measure(key, definition["label"], spread(a), spread(b), paired_ratio(a, b, definition["floor"]))


def measures(pairs: Sequence[Pair]) -> dict[str, Measure]:
    """All of them, in the order of the page."""
    return {key: measure(key, pairs) for key in DEFINITIONS}


def typical_pair(pairs: Sequence[Pair]) -> int | None:
    """The number of the pair whose short request's ratio lies closest to the median; the earlier one of two."""
    ratio = measure("short_wall", pairs).ratio
    if ratio is None:
        return None
    return min(pairs, key=lambda pair: (abs(pair.b.short.wall / pair.a.short.wall - ratio.median), pair.number)).number


def largest_difference(pairs: Sequence[Pair]) -> float | None:
    """The most that the median of one measure of E2E time moved between two arms, as a share: the noise floor of equal arms."""
    ratios = [measure(key, pairs).ratio for key in ("short_wall", "cold_wall", "makespan")]
    return max((abs(ratio.median - 1.0) for ratio in ratios if ratio), default=None)
