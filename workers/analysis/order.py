"""In which order the blocks of a run come. Pure: same seed, same order."""

from __future__ import annotations

from dataclasses import dataclass

from workers.analysis.paired import MIN_PAIRS
from workers.load.draws import Draws

ABBA, RANDOM = "abba", "random"
ORDERS = (ABBA, RANDOM)
DEFAULT_FLOOR = 2  # pairs: one tells nothing of how much they differ, and each costs as much as a pair of the comparison
FLOOR_DRAWS = 1_000_000  # above every pair's number, so that a floor's load is none of the comparison's


@dataclass(frozen=True, slots=True)
class Step:
    """One block. `pair` counts from 1 and is 0 within the floor, where `floor` counts; `arm` is the policy in force."""

    index: int
    pair: int
    arm: str
    floor: int = 0
    second: bool = False  # within its pair

    @property
    def draws(self) -> int:
        """What the load of its pair is drawn from, beside the run's seed: the same for both blocks of a pair."""
        return FLOOR_DRAWS + self.floor if self.floor else self.pair

    @property
    def label(self) -> str:
        """Sets apart what must be fresh in each block."""
        return f"floor{self.floor}{'ab'[self.second]}" if self.floor else f"{self.pair}{self.arm}"

    @property
    def where(self) -> str:
        if self.floor:
            return f"Floor pair {self.floor}, {'second' if self.second else 'first'} block"
        return f"Pair {self.pair}, arm {self.arm}"


def steps(pairs: int, *, order: str = ABBA, seed: int = 0, floor: int = 0) -> list[Step]:
    """All blocks: first `floor` pairs with arm A on both sides, then the pairs of the comparison.

    `abba`: AB, BA, AB, ..., so that a steady drift of the machine weighs on both arms alike. `random`: as many pairs begin with
    A as with B (one more of either when their number is odd), in an order drawn from the seed, so that nothing periodic can keep
    step with the blocks. Raises ValueError on an order that is neither.
    """
    if order not in ORDERS:
        raise ValueError(f"There is no order {order!r}; known are {', '.join(ORDERS)}.")
    firsts = _drawn(pairs, seed) if order == RANDOM else ["AB" if pair % 2 else "BA" for pair in range(1, pairs + 1)]
    found = [(0, "A", number, second) for number in range(1, floor + 1) for second in (False, True)]
    found += [(pair, arm, 0, arm != arms[0]) for pair, arms in enumerate(firsts, start=1) for arm in arms]
    return [Step(index, *each) for index, each in enumerate(found, start=1)]


def _drawn(pairs: int, seed: int) -> list[str]:
    """Fisher and Yates' shuffle of halves of AB and BA; which of them is one more is drawn too."""
    draws = Draws(f"{seed}:order")
    more, less = ("AB", "BA") if draws.uniform() < 0.5 else ("BA", "AB")
    found = [more] * ((pairs + 1) // 2) + [less] * (pairs // 2)
    for last in range(pairs - 1, 0, -1):
        other = draws.whole(0, last)
        found[last], found[other] = found[other], found[last]
    return found


def default_floor(pairs: int, *, equal_arms: bool) -> int:
    """0 where the arms are equal, since the comparison is a floor then, and where the pairs are too few for any claim."""
    return 0 if equal_arms or pairs < MIN_PAIRS else DEFAULT_FLOOR
