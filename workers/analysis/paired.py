"""How arm B compares with arm A over pairs of neighbouring blocks: the median ratio and an exact interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from workers.analysis.numbers import median

LEVEL = 0.95  # the coverage that an interval has at least, where the number of pairs allows it
MIN_PAIRS = 5  # below, not even the whole range of the pairs covers the median with 90 % probability
METHOD = "median of the paired ratios; exact interval of the median from order statistics (sign test)"


class Verdict(StrEnum):
    SHOWN = "shown"
    NOT_SHOWN = "no difference shown"
    TOO_FEW = "too few pairs"


@dataclass(frozen=True, slots=True)
class Ratio:
    """B against A. `low` and `high` are None below MIN_PAIRS pairs; `level` is the interval's true coverage, 0 to 1."""

    median: float
    low: float | None
    high: float | None
    level: float | None
    n: int

    @property
    def verdict(self) -> Verdict:
        if self.low is None or self.high is None:
            return Verdict.TOO_FEW
        return Verdict.SHOWN if self.low > 1.0 or self.high < 1.0 else Verdict.NOT_SHOWN


def coverage(n: int, k: int) -> float:
    """Probability that the median of a continuous distribution lies between the k-th smallest and k-th largest of n draws.

    1 - 2 * P(X < k) with X binomial(n, 1/2): the inversion of the sign test, with no assumption on the distribution's shape.
    """
    return 1.0 - 2.0 * sum(math.comb(n, i) for i in range(k)) / 2.0**n


def interval_rank(n: int, level: float = LEVEL) -> int:
    """The largest rank whose interval still covers `level`; 1, the whole range, where none does."""
    rank = 1
    while 2 * (rank + 1) <= n and coverage(n, rank + 1) >= level:
        rank += 1
    return rank


def paired_ratio(a: Sequence[float], b: Sequence[float], floor: float = 0.0) -> Ratio | None:
    """The ratio b / a of each pair, summed up on the logarithm's scale so that 2 and 1/2 weigh alike.

    `floor`: smaller values count as this one, for measures whose small values carry no meaning. Pairs without a positive value on
    both sides are left out. None when no pair is left; ValueError when the sides differ in length.
    """
    sides = [(max(x, floor), max(y, floor)) for x, y in zip(a, b, strict=True)]
    logs = sorted(math.log(y / x) for x, y in sides if x > 0 and y > 0)
    if not logs:
        return None
    n = len(logs)
    middle = math.exp(median(logs))
    if n < MIN_PAIRS:
        return Ratio(middle, None, None, None, n)
    rank = interval_rank(n)
    return Ratio(middle, math.exp(logs[rank - 1]), math.exp(logs[n - rank]), coverage(n, rank), n)
