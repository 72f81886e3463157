"""Counts of durations in bins that grow by a constant ratio, so that counts of any two stretches of time can be added. Pure.

A bin is a sixteenth of an octave wide: a percentile read from it is at most 2.2 % off. Bin 0 begins at SMALLEST_S.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Raised when the bins change: counts of another version are not added.
VERSION = 1
SMALLEST_S = 1e-4
PER_OCTAVE = 16
BINS = 24 * PER_OCTAVE  # up to 28 minutes; longer durations count in the last one

type Counts = dict[int, int]


def bin_of(seconds: float) -> int:
    if seconds <= SMALLEST_S:
        return 0
    return min(BINS - 1, int(math.log2(seconds / SMALLEST_S) * PER_OCTAVE))


def count(counts: Counts, seconds: float) -> None:
    index = bin_of(seconds)
    counts[index] = counts.get(index, 0) + 1


def add(counts: Counts, more: Mapping[int, int]) -> None:
    for index, n in more.items():
        counts[index] = counts.get(index, 0) + n


def percentile(counts: Mapping[int, int], q: float) -> float | None:
    """Seconds, by linear interpolation between order statistics at q·(n − 1), each taken as its bin's middle; None of none."""
    n = sum(counts.values())
    if not n:
        return None
    position = q * (n - 1)
    low = _at(counts, int(position))
    return low + (_at(counts, min(int(position) + 1, n - 1)) - low) * (position % 1)


def _at(counts: Mapping[int, int], k: int) -> float:
    """The k-th smallest, counted from 0."""
    below = 0
    for index in sorted(counts):
        below += counts[index]
        if k < below:
            return float(SMALLEST_S * 2 ** ((index + 0.5) / PER_OCTAVE))
    raise IndexError(k)


def dump(counts: Mapping[int, int]) -> dict[str, int]:
    """As JSON writes it."""
    return {str(index): n for index, n in sorted(counts.items())}


def load(stored: object) -> Counts:
    """What `dump` wrote; what is none is no count."""
    found: Counts = {}
    for index, n in (stored if isinstance(stored, dict) else {}).items():
        if str(index).isdigit() and int(index) < BINS and isinstance(n, int) and n > 0:
            found[int(index)] = n
    return found
