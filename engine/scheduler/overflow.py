"""A full pool: under unified KV slots take cells as they need them, so a batch can find too few. Then one task gives way.

In turn, each time a batch does not fit: idle slots give up what they hold; then the youngest prompt of the batch is parked, which
means that it drops its cells and starts again when the pool has room for all of it; where that cannot help, the youngest
task of the batch ends in error. Tasks that were not in the batch are never touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler import waits
from engine.scheduler.batch import Draft
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.phases import Phases
from engine.scheduler.plan import Plan
from engine.scheduler.slots import PENDING, Slot, SlotState


class Overflow:
    def __init__(self, config: SchedulerConfig, slots: Sequence[Slot], phases: Phases) -> None:
        self._n_ctx = config.n_ctx
        self._slots = slots
        self._phases = phases
        self._last = -1  # number of the last batch that did not fit
        self._idle_must_go = False
        self._parked: list[Slot] = []
        self._emptied: list[Slot] = []  # in the books; their memory follows with the next batch

    def relieve(self, plan: Plan) -> Slot | None:
        """The slot whose task must end since this batch did not fit; None when there is another way."""
        again, self._last = plan.iteration == self._last + 1, plan.iteration
        if not again and any(map(_is_spare, self._slots)):
            self._idle_must_go = True
            return None
        served = [self._slots[entry.slot] for entry in plan.entries if self._slots[entry.slot].task_id == entry.task_id]
        prompts = [slot for slot in served if slot.state in PENDING]
        youngest = max(prompts or served, key=_age, default=None)
        if youngest is None or not prompts or not self._others_make_room(youngest):
            return youngest
        youngest.cells.clear()
        youngest.n_cached = 0
        youngest.parked = True
        self._parked.append(youngest)
        self._emptied.append(youngest)
        return None

    def _others_make_room(self, slot: Slot) -> bool:
        """Some other task can come to its end without this one. Under a barrier held slots may wait for this very prompt."""
        if any(other.state is SlotState.GENERATING and other.paused_at is None for other in self._slots):
            return True
        others = [other for other in self._slots if other is not slot and other.state in PENDING and other.parent is None]
        return not self._phases.is_barrier and any(other.cells and not other.parked for other in others)

    def without_parked(self, draft: Draft, generating: Sequence[Slot], pending: list[Slot], iteration: int) -> list[Slot]:
        """Prompts that may be in this batch: parked ones once there is room for them, or when nobody else has anything to do.

        Never right behind a batch that did not fit: the others go on first.
        """
        self._parked = [slot for slot in self._parked if slot.parked]
        if not self._parked:
            return pending
        room = -1 if iteration == self._last + 1 else self._room - len(generating)
        ready = [slot for slot in pending if not slot.parked or len(slot.prompt) < room]
        if not ready and not generating:
            ready = pending
        for slot in pending:
            if slot in ready:
                slot.parked = False
            else:
                draft.skip(slot, waits.parked(len(slot.prompt)), 0.0, passed_over=False)
        return ready

    @property
    def _room(self) -> int:
        return self._n_ctx - sum(len(slot.cells) for slot in self._slots if not _is_spare(slot))

    def purges(self, n_tokens: int) -> tuple[int, ...]:
        """Spare slots give up their cells, lowest index first, until the batch fits; all of them after one that did not.

        What slots held when they were parked goes too.
        """
        if not n_tokens:
            return ()
        short = sum(len(slot.cells) for slot in self._slots) + n_tokens - self._n_ctx
        all_must_go, self._idle_must_go = self._idle_must_go, False
        purged = [slot.id for slot in self._emptied if not slot.cells]
        self._emptied.clear()
        for slot in self._slots:
            if _is_spare(slot) and (all_must_go or (short > 0 and slot.cells)):
                short -= len(slot.cells)
                slot.cells.clear()
                purged.append(slot.id)
        return tuple(purged)


def _is_spare(slot: Slot) -> bool:
    """Nobody needs its cells: it is idle, or waits to get a copy of its parent's."""
    return slot.state is SlotState.IDLE or slot.parent is not None


def _age(slot: Slot) -> tuple[float, int]:
    return (slot.assigned_at or 0.0, slot.task_id)
