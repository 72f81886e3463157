"""Nobody is passed over for ever: who was passed over often enough leads the next batch, with its group."""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler.slots import Slot


def patience(n_slots: int) -> int:
    """How many batches may pass a slot over before it leads one.

    Several slots can be due at once, and each leads in turn, so a slot waits for at most `patience + n_slots - 1` batches. The
    rotating orders need no more than `n_slots` by themselves where nothing generates: this is above that, and out of their way.
    """
    return max(8, 2 * n_slots)


def leader(generating: Sequence[Slot], pending: Sequence[Slot], limit: int, n_batch: int) -> Slot | None:
    """The slot that was passed over most often, if that is at least `limit` times; ties go to the lowest index.

    A prompt cannot lead while its own group generates on so many slots that they fill the batch: nobody would gain by it.
    """
    due = [slot for slot in generating if slot.passed >= limit]
    for slot in pending:
        if slot.passed >= limit and sum(other.group is slot.group for other in generating) < n_batch:
            due.append(slot)
    return max(due, key=lambda slot: (slot.passed, -slot.id), default=None)
