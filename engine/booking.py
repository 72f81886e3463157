"""What a settlement means for readers, counters and the records of ended tasks. Used by the loop thread alone."""

from __future__ import annotations

from engine.delivery import Handle
from engine.faults import FaultLog
from engine.outbox import Outbox
from engine.ring import TaskRing
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import Finished, Plan, Settlement


class Booking:
    """`n_tokens_max`: most tokens that a slot ever held at the end of a task."""

    def __init__(self, scheduler: Scheduler, outbox: Outbox, faults: FaultLog) -> None:
        self.tasks = TaskRing()
        self.n_tokens_max = 0
        self._scheduler = scheduler
        self._outbox = outbox
        self._faults = faults

    def absorb(self, plan: Plan, settlement: Settlement, now: float) -> None:
        outbox = self._outbox
        if settlement.progress:  # there was prompt work
            outbox.note_prompts_done(plan, now)
            outbox.progress(settlement.progress, now)
        handles, emit = outbox.handles, outbox.emit
        for _, task_id, token, _ in settlement.emissions:
            handle = handles.get(task_id)
            if handle is None or handle.text.stopped_by:
                continue
            reason = emit(handle, token, now)
            if reason is None:
                continue
            finished = self._scheduler.finish(handle.task_id, reason, now, handle.n_decoded)
            if finished is not None:
                self.end(finished)
        for finished in settlement.finished:
            self.end(finished)

    def end(self, finished: Finished) -> None:
        if finished.error:
            self._faults.task(finished)
        self.n_tokens_max = max(self.n_tokens_max, finished.n_slot_tokens)
        if (handle := self._outbox.end(finished)) is not None:
            self._note(handle, finished)

    def cancel(self, task_id: int, now: float) -> None:
        """The reader of a task is gone; unknown and finished ids are ignored."""
        handle = self._outbox.handles.pop(task_id, None)
        if handle is not None and (finished := self._scheduler.cancel(task_id, now)) is not None:
            self._note(handle, finished)

    def _note(self, handle: Handle, finished: Finished) -> None:
        self.tasks.add(self._scheduler.iteration, handle.task, finished, handle.worst_gap_s)
