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
    """Seconds at position q·(n − 1) of the ordered durations, those of a bin spread evenly over its octaves; None of none."""
    n = sum(counts.values())
    if not n:
        return None
    position = q * (n - 1)
    below = 0
    for index in sorted(counts):
        inside = counts[index]
        if position <= below + inside - 1 or below + inside == n:
            share = (min(position, below + inside - 1) - below + 0.5) / inside
            return float(SMALLEST_S * 2 ** ((index + share) / PER_OCTAVE))
        if position < below + inside:  # between the last of this bin and the first of the next: the upper edge of this one
            return float(SMALLEST_S * 2 ** ((index + 1) / PER_OCTAVE))
        below += inside
    return None


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
