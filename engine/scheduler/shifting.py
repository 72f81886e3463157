"""Context shift: a generating slot that is full forgets a part of its text behind the tokens to keep, and goes on.

The cells are taken out of a slot's books when it is found full, and out of the memory with the next batch that has a token of the
slot. Until that is done nothing else happens to the slot's memory; a task that ends before it leaves the tokens to keep alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.plan import Entry, Plan, Shift
from engine.scheduler.slots import Slot

SPARE = 4  # cells that a request may not keep, as in llama-server


class Shifting:
    """`waiting` are slots whose memory is still as it was. `disturb` is called for each: the next batch is no ordinary one."""

    def __init__(self, config: SchedulerConfig, disturb: Callable[[], None]) -> None:
        self._config = config
        self._disturb = disturb
        self.waiting: list[Slot] = []

    def make_room(self, slot: Slot) -> bool:
        """False when the slot cannot forget anything: shifts are off, or other slots share its cells (they would move too)."""
        task = slot.task
        if not self._config.context_shift or slot.shares or task is None:
            return False
        keep = max(0, min(task.n_keep, self._config.n_ctx_slot - SPARE))
        left = len(slot.cells) - keep
        if left < 1:
            return False
        discard = max(1, min(task.n_discard or left // 2, left))
        del slot.cells[keep : keep + discard]
        slot.shift = Shift(slot.id, keep, discard)
        slot.truncated = True
        self.waiting.append(slot)
        self._disturb()
        return True

    def take(self, entries: Sequence[Entry]) -> tuple[Shift, ...]:
        """What the batch with these entries must do to the memory before it runs; a slot without an entry waits on."""
        if not self.waiting:
            return ()
        served = {entry.slot for entry in entries}
        taken, left = [], []
        for slot in self.waiting:
            if slot.shift is None:
                continue
            if slot.id in served:
                taken.append(slot.shift)
                slot.shift = None
            else:
                left.append(slot)
        self.waiting = left
        return tuple(taken)


def forget_shifted(plan: Plan, slots: Sequence[Slot], only: int | None = None) -> None:
    """The batch failed, so nobody knows whether its shifts were made: what lies before them is sure either way."""
    for shift in plan.shifts:
        if only is None or shift.slot == only:
            del slots[shift.slot].cells[shift.keep :]
