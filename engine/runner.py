"""The one thread that plans, runs and settles batches, and the door through which other threads reach the scheduler.

Order of one turn: take the inbox, plan, hand out what is ready, run, settle. The scheduler is touched under one lock, which is
free while the backend computes: views and policy changes answer during a batch, submissions and cancellations take effect
between batches.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.backends.base import Backend, BackendError, KvFull
from engine.booking import Booking
from engine.clock import Clock
from engine.delivery import Handle, deliver
from engine.door import UNLIMITED, Door
from engine.edits import Edit, Edits, SlotEdit
from engine.faults import FaultLog
from engine.meters import Meters
from engine.outbox import Outbox
from engine.ring import iteration_ring
from engine.scheduler.control import PolicyState
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import ErrorType, Outcome, Plan, Settlement
from engine.scheduler.task import Task
from engine.watch import Watch

log = logging.getLogger("engine.runner")

KV_EXCEEDED = "Context size has been exceeded."
_TICKS = 3  # turns of the event loop, some 20 us each, in which requests that came together are all read
_STALLED_S = 0.002  # pause when there is work but nothing to run: time alone can open a barrier


class Runner:
    """Owns scheduler and backend from `start` to `stop`. Events reach `loop`, the event loop of the HTTP side."""

    def __init__(
        self,
        scheduler: Scheduler,
        backend: Backend,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        queue_limit: int = UNLIMITED,
    ) -> None:
        self.backend = backend
        self.clock = clock
        self.ring = iteration_ring()
        self.meters = Meters(scheduler.config.n_slots)
        self.meters.policy(scheduler.policy(clock.now()))
        self._scheduler = scheduler
        self._is_pool = scheduler.config.kv_mode == "unified"
        self._loop = loop
        self._lock = threading.Lock()
        self.door = Door(scheduler, self._lock, clock, self.meters, queue_limit)
        self._wake = threading.Event()
        self._stopping = False
        self._inbox: deque[Callable[[float], None]] = deque()
        self._outbox = Outbox(backend, self.meters)
        self._faults = FaultLog()
        self.books = Booking(scheduler, self._outbox, self._faults)
        self._edits = Edits(scheduler, self._lock, self._call)
        self._watch = Watch(self._lock)
        self._thread = threading.Thread(target=self._run, name="engine-loop", daemon=True)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Ends the loop after the running batch; False when that takes longer than `timeout` seconds."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def submit(self, task: Task, handles: Sequence[Handle]) -> None:
        """`handles` has one for the task and one for each of its children. `door.reserve` says whether there is room."""
        inbox = self.door.inbox
        inbox[task.id] = task

        def enter(now: float) -> None:
            inbox.pop(task.id, None)
            for handle in handles:
                self._outbox.handles[handle.task_id] = handle
            try:
                self._scheduler.submit(task, now)
            except Exception:
                log.exception("Task %d could not be taken in", task.id)
                self._outbox.drop(handles, "Internal error of the scheduler.", now)

        self._inbox.append(enter)
        self._knock(_TICKS)

    def _knock(self, ticks: int) -> None:
        """Wakes a loop that has nothing to do, some turns of the event loop later: requests that came together then share their
        first batch. A busy loop looks into the inbox at each turn anyway."""
        if ticks and _is_running(self._loop):
            self._loop.call_soon(self._knock, ticks - 1)
        else:
            self._wake.set()

    def cancel(self, task_ids: Sequence[int]) -> None:
        """Ends tasks whose reader is gone; unknown and finished ids are ignored."""

        def leave(now: float) -> None:
            for task_id in task_ids:
                self.books.cancel(task_id, now)

        self.door.release(task_ids)
        self._inbox.append(leave)
        self._wake.set()

    def expire(self, task_ids: Sequence[int], message: str) -> None:
        """Ends those of the tasks whose prompt nobody has begun, with this sentence, between two batches."""

        def leave(now: float) -> None:
            for task_id in task_ids:
                if task_id not in self._outbox.handles:
                    continue
                if (finished := self._scheduler.expire(task_id, message, now)) is not None:
                    self.meters.expired += 1
                    self.books.end(finished)

        self._inbox.append(leave)
        self._wake.set()

    @property
    def n_tasks(self) -> int:
        """Tasks and children that came in and have not ended."""
        return len(self._outbox.handles) + len(self.door.inbox)

    def view(self) -> dict[str, Any]:
        """The scheduler's state, with what still waits in the inbox counted as queued."""
        with self._lock:
            now = self.clock.now()
            view: dict[str, Any] = self._scheduler.view(now)
            waiting = [task.submitted_at for task in self.door.inbox.copy().values()]
        if waiting:
            queue = view["queue"]
            oldest = max(queue["oldest_s"] or 0.0, now - min(waiting))
            view["queue"] = {"depth": queue["depth"] + len(waiting), "oldest_s": oldest}
        return view

    def set_policy(
        self, changes: Mapping[str, object], *, expected_version: int, ttl_s: float | None, reason: str, dry_run: bool
    ) -> PolicyState:
        """Raises PolicyConflict or PolicyInvalid, as the scheduler does. In force from the next iteration on."""
        with self._lock:
            policy = self._scheduler.set_policy(
                changes,
                expected_version=expected_version,
                now=self.clock.now(),
                ttl_s=ttl_s,
                reason=reason,
                dry_run=dry_run,
            )
            if not dry_run:
                self.meters.policy(policy)
            self._watch.count += 1
        self._wake.set()
        return policy

    async def edit_slot(self, slot: int, edit: SlotEdit, patience: float) -> Any:
        """Runs `edit` on the loop thread, between batches, once the slot is idle; its result.

        `edit` gets the tokens that the slot holds, and changes the list to what the slot holds after it. Raises what `edit`
        raises, and SlotBusy when the slot is busy for `patience` seconds.
        """
        result: asyncio.Future[Any] = self._loop.create_future()
        self._edits.add(Edit(slot, edit, self.clock.now() + patience, result))
        self._wake.set()
        return await result

    def task_of(self, task_id: int | None, slot: int) -> Handle | None:
        """The handle of a slot's task; of an idle slot the task that it had before, None when it never had one."""
        return self._outbox.task_of(task_id, slot)

    @property
    def changes(self) -> int:
        """Grows with each iteration and each change of state between iterations."""
        return self._watch.count

    async def changed(self, since: int) -> None:
        """Returns once `changes` is above `since`."""
        await self._watch.changed(since)

    # -- the loop thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                if not self._turn():
                    self._pause()
            except Exception:
                log.exception("The scheduler failed; every task is ended")
                self._abort_all("Internal error of the scheduler.")
                self._wake.wait(0.05)
        self._abort_all("The server is shutting down.", ErrorType.UNAVAILABLE)

    def _turn(self) -> bool:
        """One iteration; False when there was nothing to do."""
        began = self.clock.now()
        if self._edits.waiting:
            self._watch.count += self._edits.run(began)
            began = self.clock.now()
        with self._lock:
            if self._inbox:
                self._take_inbox(began)
            plan = self._scheduler.plan(began)
            if plan.policy_version != self.meters.version:
                self.meters.policy(self._scheduler.policy(began))
            planned = self.clock.now()
            if plan.starts or plan.child_starts:
                self._outbox.note_starts(plan, planned)
            if self._watch.watchers:
                self._watch.wake(self._call)
            if not plan.entries:
                return self._settle_empty(plan, planned)
        if self._outbox.events:
            self._publish()  # right before the backend releases the GIL, so that readers work while it computes
        outcome, error = self._compute(plan)
        ran = self.clock.now()
        with self._lock:
            if outcome is not None and outcome.probs is not None:
                self._outbox.note_probs(outcome)
            settlement = self._failed(plan, error, ran) if outcome is None else self._scheduler.settle(plan, outcome, ran)
            self.books.absorb(plan, settlement, ran)
            took_ms = ((planned - began) * 1e3, (ran - planned) * 1e3, (self.clock.now() - ran) * 1e3)
            record = self._scheduler.record(plan, began, *took_ms, error)
            self.ring.append(record)
            self._watch.count += 1
        self.meters.iteration(record)
        return True

    def _settle_empty(self, plan: Plan, now: float) -> bool:
        """A plan without a batch can still end tasks or let held tokens go; False when it did neither."""
        settlement = self._scheduler.settle(plan, Outcome(), now)
        if not settlement.emissions and not settlement.finished:
            return False
        self.books.absorb(plan, settlement, now)
        self._watch.count += 1
        return True

    def _take_inbox(self, now: float) -> None:
        inbox = self._inbox
        while inbox:
            inbox.popleft()(now)
            self._watch.count += 1

    def _failed(self, plan: Plan, error: str, now: float) -> Settlement:
        """A full pool ends one task at most; the line about it is that task's."""
        fail = self._scheduler.overflow if error is KV_EXCEEDED else self._scheduler.fail
        return fail(plan, error, now)

    def _compute(self, plan: Plan) -> tuple[Outcome | None, str]:
        """Runs the batch; no outcome but a sentence when it failed as a whole."""
        try:
            for slot in plan.purges:
                self.backend.clear(slot)
            return self.backend.run(plan), ""
        except KvFull:
            error = KV_EXCEEDED
            if self._is_pool:
                return None, error
        except BackendError as exc:
            error = str(exc) or "Compute error."
        except Exception as exc:
            log.exception("The backend failed at iteration %d", plan.iteration)
            error = f"Internal error of the backend: {type(exc).__name__}."
        self._faults.iteration(plan, error)
        return None, error

    def _publish(self) -> None:
        """Straight to its connection where there is a sink, else in one call to the event loop."""
        if left := self._outbox.hand_out():
            self._call(deliver, left)

    def _call(self, function: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:  # the event loop is closed: nobody reads any more
            log.debug("Nobody is left to read")

    def _pause(self) -> None:
        self._publish()
        with self._lock:
            now = self.clock.now()
            policy = self._scheduler.policy(now)
            self.meters.policy(policy)
            reverts_at = policy.reverts_at
            timeout = None if reverts_at is None else max(0.0, reverts_at - now)
            if self._scheduler.has_work:
                timeout = _STALLED_S
        if self._stopping or self._inbox:
            return
        if not self._wake.wait(timeout):
            self._watch.count += 1  # time alone changed something: a policy's deadline, or a barrier

    def _abort_all(self, message: str, kind: ErrorType = ErrorType.SERVER) -> None:
        with self._lock:
            now = self.clock.now()
            self._take_inbox(now)
            for task_id in list(self._outbox.handles):
                try:
                    self._scheduler.cancel(task_id, now)
                except Exception:
                    log.exception("Task %d could not be taken out", task_id)
            self._outbox.drop(list(self._outbox.handles.values()), message, now, kind)
            self._watch.count += 1
            self._watch.wake(self._call)
        self._edits.refuse(message)
        self._publish()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """In this thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
