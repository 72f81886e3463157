"""Who is where: tasks in slots, tasks in the queue, and tasks that ended and are not yet reported."""

from __future__ import annotations

from collections.abc import Iterable

from engine.scheduler.admission import (
    Queue,
    Waiting,
    child_task,
    is_atomic,
    n_left_out,
    rejection,
)
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.phases import Phases
from engine.scheduler.plan import ErrorType, Finished, FinishReason
from engine.scheduler.prefix import reusable
from engine.scheduler.slots import Slot
from engine.scheduler.task import Group, Task
from engine.scheduler.view import Totals

NO_SLOT = -1


class Tenancy:
    """Every task is in exactly one place: the queue (a parent's children with it), a slot, or `ended`."""

    def __init__(self, config: SchedulerConfig, slots: list[Slot], phases: Phases, totals: Totals) -> None:
        self._config = config
        self._slots = slots
        self._phases = phases
        self._totals = totals
        self._stamp = 0
        self.queue = Queue(patience=2 * config.n_slots)
        self.where: dict[int, Slot] = {}
        self.ended: list[Finished] = []

    def submit(self, task: Task, now: float) -> None:
        refused = rejection(task, self._config)
        if refused is not None:
            reason = FinishReason.ERROR if refused.message else FinishReason.NONE
            for task_id in (task.id, *task.children):
                self.ended.append(self._unslotted(task_id, task, reason, now, refused.message, refused.type))
            return
        prompt = task.prompt if isinstance(task.prompt, list) else list(task.prompt)
        self.queue.add(Waiting(task, prompt, task.submitted_at or now))
        self.admit(now)

    def admit(self, now: float) -> None:
        """Gives slots to the oldest tasks that can run in them, until none can."""
        while self.queue:
            found = self.queue.next_runnable(self._slots, self._config)
            if found is None:
                return
            self._launch(*found, now)

    def cancel(self, task_id: int, now: float) -> Finished | None:
        slot = self.where.get(task_id)
        if slot is not None:
            return self.end(slot, FinishReason.CANCELLED, now)
        item = self.queue.remove(task_id)
        if item is not None:
            for child_id in item.task.children:
                self.ended.append(self._unslotted(child_id, item.task, FinishReason.CANCELLED, now))
        else:
            item = self.queue.drop_child(task_id)
        return None if item is None else self._unslotted(task_id, item.task, FinishReason.CANCELLED, now)

    def would_wait(self, tasks: Iterable[Task]) -> int:
        """How many of the tasks, oldest first, would join the queue if they came now."""
        free = set() if self.queue.holds_all_back else {slot.id for slot in self._slots if slot.task is None}
        return n_left_out(tasks, free, len(self._slots))

    def expire(self, task_id: int, message: str, now: float) -> Finished | None:
        """Ends a task that had no first visit yet, its children with it; None when it had one, or is nowhere."""
        error, kind = FinishReason.ERROR, ErrorType.UNAVAILABLE
        slot = self.where.get(task_id)
        if slot is not None:
            return None if slot.visited else self.end(slot, error, now, message, kind=kind)
        item = self.queue.remove(task_id)
        if item is None:
            return None
        for child_id in item.task.children:
            self.ended.append(self._unslotted(child_id, item.task, error, now, message, kind))
        return self._unslotted(task_id, item.task, error, now, message, kind)

    def end(
        self,
        slot: Slot,
        reason: FinishReason,
        now: float,
        error: str = "",
        *,
        truncated: bool = False,
        cells_known: bool = True,
        kind: ErrorType = ErrorType.SERVER,
    ) -> Finished:
        """Takes a task out of its slot; children that still wait for its prompt end with it (see `ended`).

        `cells_known` False: the batch failed, so cells beyond the remembered ones may exist. The next start trims them, unless
        the memory cannot drop a tail: then the slot starts from nothing.
        """
        task = slot.task
        assert task is not None
        slot.resume(now)
        finished = self._finished(slot, task.id, reason, now, error, truncated, kind)
        self._totals.tasks_finished += 1
        if slot.first_token_at is not None:
            self._totals.generation_s += now - slot.first_token_at - slot.paused_s
        del self.where[task.id]
        if not cells_known and not self._config.can_trim:
            slot.cells.clear()
        slot.release(self._next_stamp(), now)
        if task.children:
            self._end_children(task.id, reason, now, kind)
        return finished

    def _end_children(self, parent: int, reason: FinishReason, now: float, kind: ErrorType) -> None:
        error = "" if reason is FinishReason.CANCELLED else f"parent task {parent} ended before its prompt was processed"
        for slot in self._slots:
            if slot.parent == parent:
                self.ended.append(self.end(slot, reason, now, error, kind=kind))

    def take_ended(self) -> tuple[Finished, ...]:
        if not self.ended:
            return ()
        ended, self.ended = self.ended, []
        return tuple(sorted(ended, key=lambda finished: finished.slot))

    def _launch(self, item: Waiting, slot: Slot, children: list[Slot], now: float) -> None:
        task = item.task
        group = self._interned(task.group)
        slot.take(task, item.prompt, group, submitted_at=item.since, now=now)
        slot.atomic = is_atomic(task, self._config)
        if task.cache_prompt and slot.needs_token and slot.lora == group.lora:
            slot.n_cached = reusable(slot.cells, item.prompt, can_trim=self._config.can_trim)
        self.where[task.id] = slot
        for index, child in enumerate(children):
            own = child_task(task, index)
            child.take(own, item.prompt, group, submitted_at=item.since, now=now)
            child.parent = task.id
            self.where[own.id] = child
        for taken in (slot, *children):
            self._phases.place(taken, now)

    def _interned(self, group: Group) -> Group:
        """Equal groups of busy slots are one object, so that a batch compares identities."""
        return next((slot.group for slot in self._slots if slot.group == group and slot.group is not None), group)

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def _unslotted(
        self, task_id: int, task: Task, reason: FinishReason, now: float, error: str = "", kind: ErrorType | None = None
    ) -> Finished:
        self._totals.tasks_finished += 1
        submitted = task.submitted_at or now
        return Finished(
            NO_SLOT, task_id, reason, error, len(task.prompt), submitted_at=submitted, finished_at=now, error_type=kind
        )

    @staticmethod
    def _finished(
        slot: Slot, task_id: int, reason: FinishReason, now: float, error: str, truncated: bool, kind: ErrorType
    ) -> Finished:
        return Finished(
            slot=slot.id,
            task_id=task_id,
            reason=reason,
            error=error,
            n_prompt=len(slot.prompt),
            n_cached=slot.n_cached,
            n_generated=slot.n_generated,
            n_slot_tokens=len(slot.cells),
            submitted_at=slot.submitted_at,
            assigned_at=slot.assigned_at,
            first_visit_at=slot.first_visit_at,
            prompt_done_at=slot.prompt_done_at,
            first_token_at=slot.first_token_at,
            finished_at=now,
            paused_s=slot.paused_s,
            skipped_s=slot.skipped_s,
            truncated=truncated or slot.truncated,
            error_type=kind if error else None,
            n_drafted=slot.n_drafted,
            n_accepted=slot.n_accepted,
        )
