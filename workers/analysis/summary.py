"""From the pairs of a run to the measures of its result page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from workers.analysis.differences import Difference, Word, below_floor, largest_departure, paired_difference, word_of
from workers.analysis.naming import Name
from workers.analysis.numbers import Spread, spread
from workers.analysis.paired import Ratio, Verdict, paired_ratio

# Waits shorter than this are scheduling noise of the client and the server, so a ratio of two of them says nothing.
WAIT_FLOOR_S = 0.05


MAKESPAN = Name("", "makespan", "")


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
    """One measure over the pairs. `points`: (pair, A, B) of each; `floor`: the most that equal arms differed, as a share."""

    key: str
    label: str
    a: Spread | None
    b: Spread | None
    ratio: Ratio | None
    name: Name = MAKESPAN
    difference: Difference | None = None
    points: tuple[tuple[int, float, float], ...] = ()
    floor: float | None = None

    @property
    def word(self) -> Word:
        return word_of(self.ratio, self.difference, self.name.told.better, even=self.name.even)

    @property
    def shown(self) -> bool:
        return self.word not in (Word.NOT_SHOWN, Word.TOO_FEW)

    @property
    def below_floor(self) -> bool:
        return below_floor(self.ratio, self.floor)

    @property
    def verdict(self) -> Verdict:
        return self.ratio.verdict if self.ratio else Verdict.TOO_FEW

    @property
    def times_sooner(self) -> float | None:
        return 1.0 / self.ratio.median if self.ratio else None


class Definition(TypedDict):
    label: str
    floor: float
    name: Name


DEFINITIONS: dict[str, Definition] = {
    "short_wall": {"label": "Short request, E2E", "floor": 0.0, "name": Name("short", "wall", "")},
    "short_wait": {"label": "Short request, wait", "floor": WAIT_FLOOR_S, "name": Name("short", "wait", "")},
    "short_prompt": {"label": "Short request, prompt time", "floor": 0.0, "name": Name("short", "prompt", "")},
    "cold_wall": {"label": "Cold request, E2E", "floor": 0.0, "name": Name("cold", "wall", "")},
    "cold_prompt": {"label": "Cold request, prompt time", "floor": 0.0, "name": Name("cold", "prompt", "")},
    "makespan": {"label": "Both done", "floor": 0.0, "name": MAKESPAN},
}


def value_of(arm: ArmTimes, key: str) -> float:
    """Seconds of one measure in one block."""
    if key == "makespan":
        return arm.makespan
    role, _, what = key.partition("_")
    times = arm.short if role == "short" else arm.cold
    return {"wall": times.wall, "wait": times.wait, "prompt": times.prompt}[what]


def measure(key: str, pairs: Sequence[Pair], floor: Sequence[Pair] = (), seed: int = 0) -> Measure:
    a, b = _sides(key, pairs)
    definition = DEFINITIONS[key]
    least = definition["floor"]
    equal = [[max(value, least) for value in side] for side in _sides(key, floor)]
    return Measure(
        key,
        definition["label"],
        spread(a),
        spread(b),
        paired_ratio(a, b, least),
        definition["name"],
        paired_difference(a, b, seed),
        tuple(zip((pair.number for pair in pairs), a, b, strict=True)),
        largest_departure(*equal),
    )


def _sides(key: str, pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    return [value_of(pair.a, key) for pair in pairs], [value_of(pair.b, key) for pair in pairs]


def measures(pairs: Sequence[Pair], floor: Sequence[Pair] = (), seed: int = 0) -> dict[str, Measure]:
    """All of them, in the order of the page. `floor`: pairs of blocks with equal arms; `seed`: of the bootstrap."""
    return {key: measure(key, pairs, floor, seed) for key in DEFINITIONS}


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
