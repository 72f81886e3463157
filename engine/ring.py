"""The last iterations and the last tasks that ended, for those who read afterwards or catch up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from engine.scheduler.plan import Finished
from engine.scheduler.records import IterationRecord
from engine.scheduler.task import Group, Task
from engine.scheduler.view import name_of

RING_SIZE = 16_384
TASK_RING_SIZE = 8_192


class Ring[R]:
    """Records in order of their numbers. One thread appends, any thread reads: both hold the GIL for one deque operation."""

    def __init__(self, number: Callable[[R], int], size: int) -> None:
        self._records: deque[R] = deque(maxlen=size)
        self._number = number
        self.append = self._records.append

    def after(self, number: int, limit: int, *, newest: bool = False) -> tuple[list[R], bool]:
        """Records with a number above `number`, oldest first, at most `limit` (the newest of them if `newest`).

        The flag is true when records in between are missing: they left the ring, or were cut off at the front by `newest`.
        """
        records = self._snapshot(number)
        gap = bool(records) and self._number(records[0]) > number + 1
        if newest and len(records) > limit:
            return records[-limit:], True
        return records[:limit], gap

    @property
    def last(self) -> int:
        """Number of the newest record, 0 before the first."""
        try:
            return self._number(self._records[-1])
        except IndexError:
            return 0

    def _snapshot(self, number: int) -> list[R]:
        """Reads from the newest end, so that following costs what is new and not what is kept. One C call, hence atomic."""
        count = self.last - number + 8  # a few more, for what is appended meanwhile
        if count <= 0:
            return []
        found = list(islice(reversed(self._records), count))
        found.reverse()
        return [record for record in found if self._number(record) > number]


def iteration_ring(size: int = RING_SIZE) -> Ring[IterationRecord]:
    return Ring(lambda record: record.iteration, size)


class TaskRecord(NamedTuple):
    """A task that ended. `number` counts ends from 1; `iteration` is the last batch before it.

    `worst_gap_s` is the longest time between two of its tokens, None before the second.
    """

    number: int
    iteration: int
    client: str
    group: Group
    finished: Finished
    worst_gap_s: float | None


class TaskRing(Ring[TaskRecord]):
    def __init__(self, size: int = TASK_RING_SIZE) -> None:
        super().__init__(lambda record: record.number, size)

    def add(self, iteration: int, task: Task, finished: Finished, worst_gap_s: float | None) -> None:
        """Keeps neither the prompt nor what came of it."""
        if finished.vectors is not None:
            finished = replace(finished, vectors=None)
        self.append(TaskRecord(self.last + 1, iteration, task.client, task.group, finished, worst_gap_s))


def task_json(record: TaskRecord) -> dict[str, Any]:
    """An ended task as docs/protocol.md writes it; nothing of its text."""
    finished = record.finished
    return {
        "n": record.number,
        "i": record.iteration,
        "task": finished.task_id,
        "slot": finished.slot,
        "client": record.client,
        "group": name_of(record.group),
        "reason": finished.reason.value,
        "error": finished.error,
        "n_prompt": finished.n_prompt,
        "n_cached": finished.n_cached,
        "n_generated": finished.n_generated,
        "n_drafted": finished.n_drafted,
        "n_accepted": finished.n_accepted,
        "submitted_at": finished.submitted_at,
        "assigned_at": finished.assigned_at,
        "first_visit_at": finished.first_visit_at,
        "prompt_done_at": finished.prompt_done_at,
        "first_token_at": finished.first_token_at,
        "finished_at": finished.finished_at,
        "skipped_s": round(finished.skipped_s, 4),
        "paused_s": round(finished.paused_s, 4),
        "worst_gap_s": None if record.worst_gap_s is None else round(record.worst_gap_s, 4),
    }


def record_json(record: IterationRecord) -> dict[str, Any]:
    """An iteration as docs/protocol.md writes it: `gen` are tokens that came out, drafted ones that were wrong left out."""
    return {
        "i": record.iteration,
        "t": round(record.t, 4),
        "plan_ms": round(record.plan_ms, 4),
        "run_ms": round(record.run_ms, 3),
        "settle_ms": round(record.settle_ms, 4),
        "prompt": record.prompt,
        "gen": _came_out(record) if record.drafted else record.generation,
        "skipped": [(skip.slot, skip.reason) for skip in record.skipped],
        "held": record.held,
        "phase": record.phase,
        "cohort": record.cohort,
        "sealed": record.sealed,
        "anchor": record.anchor,
        "cursor": record.cursor,
        "policy": record.policy_version,
        "queue": record.queue_depth,
        "error": record.error,
        "drafted": record.drafted,
    }


def _came_out(record: IterationRecord) -> list[tuple[int, int]]:
    wrong = {slot: n_drafted - n_accepted for slot, n_drafted, n_accepted in record.drafted}
    return [(slot, n - wrong.get(slot, 0)) for slot, n in record.generation]
