"""Batch after batch in which the same slots generate and nothing else happens: most of a server's life, so planned cheaply.

Between two batches of a small model all of Python's own memory has left the processor's near caches, and each function that a
turn runs through costs a microsecond or two to fetch. A steady run repeats the last plan with the new tokens and touches nothing
else. Its plans are like any other: whoever runs or settles them need not know.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler.plan import Entry, EntryKind, Plan, make
from engine.scheduler.records import IterationRecord
from engine.scheduler.slots import Slot

_GENERATION = EntryKind.GENERATION
_ENDLESS = 1 << 62


class Steady:
    """Begins behind `plan`, in which exactly `slots` generated. It ends with any task, arrival, or change of policy.

    The queue's depth cannot change within it. `room` is how many tokens a unified pool can still take, so that a run ends before
    idle slots would have to give up their cells; None under split KV, where each slot keeps to its own. `most`: batches
    after which somebody may have a draft; None where nobody drafts.
    """

    __slots__ = ("_left", "_record_tail", "_tail", "n_slots", "slots")

    def __init__(self, plan: Plan, slots: Sequence[Slot], room: int | None, queue_depth: int, most: int | None = None) -> None:
        self.slots = tuple(slots)
        self.n_slots = len(self.slots)
        self._left = _ENDLESS if room is None else room // self.n_slots
        if most is not None:
            self._left = min(self._left, most)
        stand = (plan.phase, plan.cohort, plan.sealed)
        self._tail = ((), plan.group, plan.anchor, (), (), *stand, (), plan.cursor, plan.policy_version, (), 0, ())
        pairs = tuple([(slot.id, 1) for slot in self.slots])  # one object for all records of the run
        self._record_tail = ((), pairs, (), (), *stand, plan.anchor, plan.cursor, plan.policy_version, queue_depth, "", ())

    def plan(self, iteration: int) -> Plan | None:
        """None when the run is over."""
        if self._left <= 0:
            return None
        self._left -= 1
        kind = _GENERATION
        entries = tuple(
            [make(Entry, (slot.id, slot.task_id, kind, (slot.last_token,), len(slot.cells), True, ())) for slot in self.slots]
        )
        plan: Plan = make(Plan, (iteration, (), entries, *self._tail))
        return plan

    def record(self, iteration: int, t: float, plan_ms: float, run_ms: float, settle_ms: float) -> IterationRecord:
        """As `record_of` for a plan of the run that did not fail."""
        record: IterationRecord = make(IterationRecord, (iteration, t, plan_ms, run_ms, settle_ms, *self._record_tail))
        return record
