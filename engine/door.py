"""Who may come in: no more tasks than the queue may hold, and none while the server ends."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from engine.clock import Clock
from engine.meters import Meters
from engine.scheduler.core import Scheduler
from engine.scheduler.task import Task

UNLIMITED = -1
DRAINING = "The server is shutting down: it takes no new requests."


class Refused(Exception):
    """No room now. `retry_after`: whole seconds after which there may be, None when another attempt here makes no sense."""

    def __init__(self, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class NeverFits(Exception):
    """More prompts in one request than an idle server would take."""


class Door:
    """Counts what the inbox holds as waiting, so that a burst during one batch cannot pass the limit.

    `reserve` and `release` are called by the event loop's thread alone; `lock` is the one around the scheduler.
    """

    def __init__(self, scheduler: Scheduler, lock: threading.Lock, clock: Clock, meters: Meters, limit: int) -> None:
        self._scheduler, self._lock, self._clock, self._meters = scheduler, lock, clock, meters
        self.limit = limit
        self.inbox: dict[int, Task] = {}  # reserved or submitted, and not yet with the scheduler
        self.closed = False

    def reserve(self, tasks: Sequence[Task]) -> None:
        """Room for all of the tasks, or Refused and room for none. NeverFits when waiting would not help."""
        if self.closed:
            raise Refused(DRAINING)
        if self.limit == UNLIMITED:
            return
        if self._scheduler.depth_with(tasks, idle=True) > self.limit:
            slots = self._scheduler.config.n_slots
            raise NeverFits(f"The request has {len(tasks)} prompts for {slots} slots and a queue of {self.limit}.")
        with self._lock:
            excess = self._scheduler.depth_with([*self.inbox.values(), *tasks]) - self.limit
        if excess > 0:
            self._meters.refused += 1
            raise Refused(f"The queue is full: {self.limit} tasks wait for a slot.", self._retry_after(excess))
        self.inbox.update((task.id, task) for task in tasks)

    def release(self, task_ids: Sequence[int]) -> None:
        """Their reader is gone, or they are with the scheduler."""
        for task_id in task_ids:
            self.inbox.pop(task_id, None)

    def _retry_after(self, places: int) -> int:
        """Until so many places are free, if tasks take as long as the last ones did: each slot frees one in such a time.

        What runs now has taken at least its age, which counts where the last tasks were shorter or there are none.
        """
        with self._lock:
            ages = self._scheduler.ages(self._clock.now())
        seconds = max(_mean(tuple(self._meters.service)), _mean(ages))
        return max(1, math.ceil(places * seconds / max(1, self._scheduler.config.n_slots)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
