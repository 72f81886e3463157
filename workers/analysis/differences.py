"""By how much B differs from A, in the measure's own unit, over pairs of blocks or between two runs; and the word for it.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from workers.analysis.bootstrap import RESAMPLES, bca, difference_of_means
from workers.analysis.numbers import median
from workers.analysis.paired import LEVEL, MIN_PAIRS, Ratio, coverage, interval_rank

MIN_BOOTSTRAP = 10  # pairs; below, resampling so few covers less than it says, so the exact interval of the median stands instead
METHODS = {
    "exact": "median of the differences; exact interval from order statistics (sign test)",
    "bca": f"mean of the differences; BCa bootstrap over pairs, {RESAMPLES:,} resamples, tails widened for small numbers",
    "unpaired": f"difference of the means; percentile bootstrap over each run's blocks, {RESAMPLES:,} resamples, tails widened",
    "": f"no interval: fewer than {MIN_PAIRS} on a side",
}

type Better = Literal["lower", "higher"]


class Word(StrEnum):
    """`FASTER`: B is better, a smaller time or a larger rate."""

    FASTER = "faster"
    SLOWER = "slower"
    EVENER = "more even"
    LESS_EVEN = "less even"
    NOT_SHOWN = "no difference shown"
    TOO_FEW = "not enough runs"


@dataclass(frozen=True, slots=True)
class Difference:
    """B minus A. `low` and `high` are those of the median with method "exact", of the mean with "bca" and "unpaired"; None, with
    method "", below the least number of pairs. `level` is the interval's coverage, nominal but for "exact".
    """

    mean: float
    median: float
    low: float | None
    high: float | None
    level: float | None
    n: int
    method: str

    @property
    def value(self) -> float:
        """The one that the interval is of."""
        return self.mean if self.method in ("bca", "unpaired") else self.median

    @property
    def side(self) -> int | None:
        """Which side of no difference the interval lies on: -1, 1, or 0 when it holds it; None without an interval."""
        return side_of(self.low, self.high, 0.0)


def side_of(low: float | None, high: float | None, none: float) -> int | None:
    if low is None or high is None:
        return None
    return 1 if low > none else -1 if high < none else 0


def paired_difference(a: Sequence[float], b: Sequence[float], seed: int) -> Difference | None:
    """`a` and `b`: one value of each block, pair by pair. None of nothing; ValueError when the sides differ in length."""
    apart = [y - x for x, y in zip(a, b, strict=True)]
    if not apart:
        return None
    n, mean, middle = len(apart), math.fsum(apart) / len(apart), median(apart)
    if n < MIN_PAIRS:
        return Difference(mean, middle, None, None, None, n, "")
    if n < MIN_BOOTSTRAP:
        ordered, rank = sorted(apart), interval_rank(n)
        return Difference(mean, middle, ordered[rank - 1], ordered[n - rank], coverage(n, rank), n, "exact")
    low, high = bca(apart, seed, LEVEL)
    return Difference(mean, middle, low, high, LEVEL, n, "bca")


def unpaired_difference(a: Sequence[float], b: Sequence[float], seed: int) -> Difference | None:
    """Between blocks that have nothing to do with each other, such as those of two runs. `n` is that of the smaller side."""
    if not a or not b:
        return None
    n = min(len(a), len(b))
    mean, middle = math.fsum(b) / len(b) - math.fsum(a) / len(a), median(b) - median(a)
    if n < MIN_PAIRS:
        return Difference(mean, middle, None, None, None, n, "")
    low, high = difference_of_means(a, b, seed, LEVEL)
    return Difference(mean, middle, low, high, LEVEL, n, "unpaired")


def word_of(ratio: Ratio | None, difference: Difference | None, better: Better, *, even: bool = False) -> Word:
    """A difference is shown when the interval of the ratio and that of the difference lie on the same side of none.

    Two conditions and not one, since the median of the ratios may move where the mean does not, and the other way round. Where no
    pair has a ratio (a rate of 0), the difference alone decides. `even`: of a measure of evenness, which is not fast or slow.
    """
    if difference is None or difference.side is None:
        return Word.TOO_FEW
    sides = {difference.side}
    if ratio is not None and ratio.n == difference.n:
        sides.add(side_of(ratio.low, ratio.high, 1.0) or 0)
    if sides == {0} or len(sides) > 1:
        return Word.NOT_SHOWN
    good = (sides == {1}) == (better == "higher")
    if even:
        return Word.EVENER if good else Word.LESS_EVEN
    return Word.FASTER if good else Word.SLOWER


def largest_departure(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The noise floor of one measure: the largest departure of a ratio from 1 among pairs of blocks with equal arms, as a share.

    Twice and half depart alike: max(b / a, a / b) - 1. None without a pair that has a ratio.
    """
    return max((max(y / x, x / y) - 1.0 for x, y in zip(a, b, strict=True) if x > 0 and y > 0), default=None)


def below_floor(ratio: Ratio | None, floor: float | None) -> bool:
    """Whether the median ratio departs from 1 by no more than equal arms did."""
    if ratio is None or floor is None:
        return False
    return max(ratio.median, 1.0 / ratio.median) - 1.0 <= floor
