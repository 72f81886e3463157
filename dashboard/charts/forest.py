"""Where the dots and intervals of a measures table lie on their common log axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FURTHEST = 3  # powers of two to either side: beyond 1/8 and 8 an arrow stands for the rest


@dataclass(frozen=True, slots=True)
class Tick:
    at: float  # per cent of the axis
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """One row's dot and interval, in per cent of the axis; `arrow` is "left" or "right" when the dot lies beyond the axis."""

    at: float
    low: float | None
    high: float | None
    arrow: str


@dataclass(frozen=True, slots=True)
class Band:
    low: float  # per cent of the axis
    width: float


@dataclass(frozen=True, slots=True)
class Forest:
    ticks: tuple[Tick, ...]
    one: float
    floor: Band | None  # where two equal arms lie
    marks: Mapping[str, Mark]


def forest(measures: Sequence[Mapping[str, Any]], floor: tuple[float, float] | None = None) -> Forest:
    """`measures` as in `workers.selectors.results`; `floor` the lowest and highest ratio of two equal arms."""
    ratios = [value for measure in measures for value in _known(measure["ratio"])]
    lowest = max(-FURTHEST, min([-1, *(math.floor(math.log2(value) + 1e-9) for value in ratios)]))
    highest = min(FURTHEST, max([1, *(math.ceil(math.log2(value) - 1e-9) for value in ratios)]))

    def place(ratio: float) -> float:
        return round(100 * (math.log2(ratio) - lowest) / (highest - lowest), 2)

    def clipped(ratio: float | None) -> float | None:
        return min(100.0, max(0.0, place(ratio))) if ratio is not None and ratio > 0 else None

    marks = {}
    for measure in measures:
        ratio = measure["ratio"]
        if not ratio["median"] or ratio["median"] <= 0:
            continue
        at = place(ratio["median"])
        arrow = "left" if at < 0 else "right" if at > 100 else ""
        marks[measure["key"]] = Mark(min(100.0, max(0.0, at)), clipped(ratio["low"]), clipped(ratio["high"]), arrow)
    ticks = tuple(Tick(place(2.0**power), _power(power)) for power in range(lowest, highest + 1))
    band = Band(place(floor[0]), round(place(floor[1]) - place(floor[0]), 2)) if floor and floor[0] > 0 else None
    return Forest(ticks, place(1.0), band, marks)


def _known(ratio: Mapping[str, Any]) -> list[float]:
    return [value for value in (ratio["low"], ratio["median"], ratio["high"]) if value is not None and value > 0]


def _power(power: int) -> str:
    return f"1/{2**-power}" if power < 0 else str(2**power)
