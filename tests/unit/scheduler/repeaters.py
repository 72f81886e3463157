"""Fake models whose text repeats, so that what follows can be looked up."""

from __future__ import annotations

from typing import Any

from tests.unit.scheduler.harness import Bench, FakeModel

ON: dict[str, Any] = {"speculative": "ngram", "speculative_ngram_size": 2}


class FakeRepeater(FakeModel):
    """Its text goes round: the token after a text of length n is n modulo `period`."""

    def __init__(self, n_slots: int, period: int = 5) -> None:
        super().__init__(n_slots)
        self._period = period

    def next_token(self, slot: int) -> int:
        return len(self.cells[slot]) % self._period


class FakeMixed(FakeRepeater):
    """Goes round most of the time, and breaks out where the sum of its last tokens says so."""

    def next_token(self, slot: int) -> int:
        cells = self.cells[slot]
        if sum(cells[-3:]) % 7 == 6:
            return FakeModel.next_token(self, slot)
        return super().next_token(slot)


def repeating(policy: dict[str, Any], slots: int = 2, **config: Any) -> Bench:
    made = Bench.make(slots, 64, policy=policy, **config)
    made.model = FakeRepeater(slots)
    made.took = 0.5
    return made


def drafted(made: Bench) -> int:
    return sum(plan.drafted for plan in made.plans)
