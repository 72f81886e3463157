"""Percentiles and spreads of small sets of measurements. docs/metrics.md names the definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    min: float
    max: float


def percentile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics: position q * (n - 1), counted from 0; `q` from 0 to 1.

    This is Hyndman and Fan's type 7, numpy's default. ValueError on an empty set or a `q` outside its range.
    """
    if not values or not 0.0 <= q <= 1.0:
        raise ValueError(f"no percentile {q} of {len(values)} values")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing."""
    return Spread(median(values), min(values), max(values)) if values else None
