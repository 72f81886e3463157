"""The scheduler: slots, queue, policy and phases behind a two-call contract.

One loop thread calls `plan -> backend.run -> settle` (or `fail`). `submit`, `cancel` and `finish` come between a settle and the
next plan; `view` and `set_policy` may come at any moment under the caller's lock, also while a batch is in flight: a change
reaches the next plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.scheduler.admission import n_left_out
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.control import PolicyControl, PolicyState
from engine.scheduler.phases import Phases
from engine.scheduler.plan import EntryKind, Finished, FinishReason, Outcome, Plan, Settlement
from engine.scheduler.planner import Planner
from engine.scheduler.policy import Drafts, Policy, capabilities
from engine.scheduler.records import IterationRecord, record_of
from engine.scheduler.settling import Settling
from engine.scheduler.shifting import Shifting
from engine.scheduler.slots import Cells, Slot, SlotState
from engine.scheduler.speculation import Speculation
from engine.scheduler.steady import Steady
from engine.scheduler.task import Task
from engine.scheduler.tenancy import Tenancy
from engine.scheduler.view import Totals, phase_view, slot_view

NEVER_SETTLED = "the batch was never settled"


class Scheduler:
    """Decides what every batch contains. Pure: time comes in as seconds on the caller's clock, and it does no I/O."""

    def __init__(self, config: SchedulerConfig, policy: Policy | None = None, now: float = 0.0) -> None:
        self.config = config
        self._slots = [Slot(index, since=now) for index in range(config.n_slots)]
        drafts = Drafts(config.can_draft, config.draft_model, config.draft_unfit)
        self._control = PolicyControl(policy or Policy(), config.kv_mode, config.n_batch, now, drafts)
        self._phases = Phases(self._slots, self._control.state.effective.phase)
        self._totals = Totals()
        self._tenancy = Tenancy(config, self._slots, self._phases, self._totals)
        self._shifting = Shifting(config, self._end_steady_run)
        self._settling = Settling(config, self._slots, self._phases, self._tenancy, self._totals, self._shifting)
        self._planner = Planner(config, self._slots, self._phases, self._shifting)
        self._in_flight: Plan | None = None
        self._steady: Steady | None = None  # any call that may change the next batch ends it

    # Tasks: between settle and plan

    def submit(self, task: Task, now: float) -> None:
        """The task takes a slot at once or joins the queue. One that can never run (empty, too long) ends in the next settle."""
        self._steady = None
        self._tenancy.submit(task, now)

    def cancel(self, task_id: int, now: float) -> Finished | None:
        """Takes a task out of wherever it is; None when it is nowhere. Children waiting for its prompt end in the next settle."""
        self._steady = None
        finished = self._tenancy.cancel(task_id, now)
        self._tenancy.admit(now)
        return finished

    def finish(self, task_id: int, reason: FinishReason, now: float, n_generated: int | None = None) -> Finished | None:
        """Ends a task in a slot for a cause that the caller saw, such as a stop word in its text; None when it is in no slot.

        `n_generated`: at which of its tokens the caller saw it; those that came behind it in the same batch count as never made.
        """
        slot = self._tenancy.where.get(task_id)
        if slot is None:
            return None
        self._steady = None
        if n_generated is not None and n_generated < slot.n_generated:
            self._totals.generated_tokens -= slot.n_generated - n_generated
            slot.n_generated = n_generated
        finished = self._tenancy.end(slot, reason, now)
        self._tenancy.admit(now)
        return finished

    def expire(self, task_id: int, message: str, now: float) -> Finished | None:
        """Ends a task, with this error, that waited for too long; None when its prompt had a first visit, or it is nowhere."""
        self._steady = None
        finished = self._tenancy.expire(task_id, message, now)
        self._tenancy.admit(now)
        return finished

    def depth_with(self, tasks: Iterable[Task], *, idle: bool = False) -> int:
        """Depth of the queue if these tasks came in now, or on a server that does nothing else."""
        if idle:
            return n_left_out(tasks, set(range(self.config.n_slots)), self.config.n_slots)
        return self.queue_depth + self._tenancy.would_wait(tasks)

    def ages(self, now: float) -> list[float]:
        """For how many seconds each busy slot's task has had it."""
        return [now - slot.assigned_at for slot in self._slots if slot.assigned_at is not None]

    def cells_of(self, slot: int) -> Cells | None:
        """Tokens that an idle slot remembers; None while a task is in it."""
        found = self._slots[slot]
        return None if found.task is not None else Cells(found.cells, found.lora)

    def set_cells(self, slot: int, cells: Cells) -> None:
        """What an idle slot holds from now on, after its caller changed the memory behind it. RuntimeError for a busy slot."""
        found = self._slots[slot]
        if found.task is not None:
            raise RuntimeError(f"slot {slot} is busy with task {found.task_id}")
        self._steady = None
        found.cells, found.lora, found.shares = list(cells), cells.lora, False

    @property
    def n_busy(self) -> int:
        return len(self._tenancy.where)

    @property
    def queue_depth(self) -> int:
        return len(self._tenancy.queue)

    @property
    def iteration(self) -> int:
        """Number of the last batch that was settled or failed; one in flight has the next number."""
        return self._totals.iterations

    @property
    def has_work(self) -> bool:
        """False: plans are empty, and settling them reports nothing, until a task is submitted."""
        return bool(self._tenancy.where or self._tenancy.ended)

    # One iteration

    def plan(self, now: float) -> Plan:
        """The next batch, to be settled or failed before the next plan, also when it has no entries.

        A plan with entries that was neither (its caller broke down) counts as failed here, so the scheduler never gets stuck.
        """
        steady = self._steady
        if steady is not None and self._in_flight is None:
            again = steady.plan(self._planner.planned + 1)
            if again is not None:
                self._planner.planned += 1
                self._in_flight = again
                return again
        return self._plan_anew(now)

    def _plan_anew(self, now: float) -> Plan:
        self._steady = None
        if self._in_flight is not None:
            self._settling.drop(self._in_flight, NEVER_SETTLED, now)
            self._landed(self._in_flight, now)
        policy = self._follow_policy(now)
        self._phases.begin(now)
        plan = self._planner.build(policy, self._control.state.version, now)
        self._in_flight = plan if plan.entries else None
        return plan

    def _follow_policy(self, now: float) -> Policy:
        self._control.tick(now, self._planner.planned + 1)
        effective = self._control.state.effective
        self._phases.follow(effective, now)
        return effective

    def settle(self, plan: Plan, outcome: Outcome, now: float) -> Settlement:
        """Books what the backend did. Entries of tasks that are gone meanwhile change nothing."""
        steady = self._steady
        if steady is not None and not outcome.errors:
            self._in_flight = None
            self._totals.iterations = plan.iteration
            settlement = self._settling.generated(steady.slots, outcome.tokens, plan.iteration, now)
            if settlement.finished:
                self._steady = None
            return settlement
        self._landed(plan, now)
        if self._planner.speculation is not None:
            self._book_drafts(self._planner.speculation, plan, outcome, now)
        settlement = self._settling.settle(plan, outcome, now)
        if plan.entries and plan.entries[-1].kind is EntryKind.GENERATION:  # decode tokens come first in a batch
            self._steady = self._steady_after(plan, settlement)
        return settlement

    def _book_drafts(self, speculation: Speculation, plan: Plan, outcome: Outcome, now: float) -> None:
        speculation.book(plan, outcome, self._slots, now)
        for _, n_drafted, n_accepted in speculation.booked if plan.drafted else ():
            self._totals.drafts += 1
            self._totals.drafted_tokens += n_drafted
            self._totals.accepted_tokens += n_accepted

    def _end_steady_run(self) -> None:
        self._steady = None

    def _steady_after(self, plan: Plan, settlement: Settlement) -> Steady | None:
        """A run begins where only time or a call can change the next batch, and no policy depends on the time.

        Where slots may have drafts it lasts until the first of them looks for one.
        """
        if plan.skipped or plan.held or settlement.finished or self._control.state.reverts_at is not None:
            return None
        slots = [slot for slot in self._slots if slot.task is not None]
        if len(slots) != len(plan.entries) or self._in_flight is not None or self._shifting.waiting:
            return None
        if any(slot.state is not SlotState.GENERATING or slot.paused_at is not None for slot in slots):
            return None
        if self._control.state.version != plan.policy_version:
            return None
        most = None
        if self._planner.speculation is not None:
            most = self._planner.speculation.quiet(slots)
            if most < 1:
                return None
        split = self.config.kv_mode == "split"
        room = None if split else self.config.n_ctx - sum(len(slot.cells) for slot in self._slots)
        return Steady(plan, slots, room, self.queue_depth, most)

    def fail(self, plan: Plan, message: str, now: float) -> Settlement:
        """The batch failed as a whole: the tasks with entries in it end in error; waiting and held ones stay.

        Slots remember only the cells that were settled before, so a later prompt never relies on what may not have been written.
        """
        self._steady = None
        self._landed(plan, now)
        return self._settling.fail(plan, message, now)

    def overflow(self, plan: Plan, message: str, now: float) -> Settlement:
        """The batch found too little room in a pool, and nothing of its entries was written: one task gives way, see `Overflow`,
        unless there were drafts in it: then it is planned again without them.

        Starts and shifts of the plan were made. Under split KV nobody can give way, so the batch counts as failed.
        """
        if self.config.kv_mode != "unified":
            return self.fail(plan, message, now)
        self._steady = None
        self._landed(plan, now)
        if plan.drafted and self._planner.speculation is not None:
            self._planner.speculation.hold_off()
            return self._settling.relieved(plan, None, message, now)
        return self._settling.relieved(plan, self._planner.overflow.relieve(plan), message, now)

    def _landed(self, plan: Plan, now: float) -> None:
        if self._in_flight is not None:
            self._planner.landed(plan, now)
        self._in_flight = None
        self._totals.iterations = plan.iteration

    def record(self, plan: Plan, t: float, plan_ms: float, run_ms: float, settle_ms: float, error: str = "") -> IterationRecord:
        """What is remembered of a plan with entries, as it was when planned; `t` is its start on the caller's clock."""
        if self._steady is not None:  # whatever was settled last, its batch was one of the run's kind
            return self._steady.record(plan.iteration, t, plan_ms, run_ms, settle_ms)
        speculation = self._planner.speculation
        drafted = speculation.booked if speculation is not None and plan.drafted else ()
        return record_of(plan, t, (plan_ms, run_ms, settle_ms), self.queue_depth, error, drafted)

    # Control: at any moment

    def set_policy(
        self,
        changes: Mapping[str, object],
        *,
        expected_version: int,
        now: float,
        ttl_s: float | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> PolicyState:
        """Changes fields of the policy from the next plan on, and answers with the new state (a dry run: with what it would be).

        Raises PolicyInvalid, or PolicyConflict when the version is not the expected one. With `ttl_s` the policy goes back at the
        deadline to the one that was requested before the first change with a deadline; a change without one makes it stay.
        """
        state = self._control.change(
            changes,
            expected_version=expected_version,
            next_iteration=self._planner.planned + 1,
            now=now,
            ttl_s=ttl_s,
            reason=reason,
            dry_run=dry_run,
        )
        self._steady = None
        if self._in_flight is None:
            self._follow_policy(now)
        return state

    def policy(self, now: float) -> PolicyState:
        """The policy in force now, gone back if its deadline has passed."""
        self._control.tick(now, self._planner.planned + 1)
        return self._control.state

    def view(self, now: float) -> dict[str, object]:
        """The GET /scheduler object without "server"; `kv.used` is the sum of what the slots' cells hold."""
        if self._in_flight is not None:
            self._control.tick(now, self._planner.planned + 1)
        else:
            self._follow_policy(now)
        oldest = self._tenancy.queue.oldest
        return {
            "t": now,
            "iteration": self._totals.iterations,
            "policy": self._control.state.as_dict(),
            "kv": {
                "mode": self.config.kv_mode,
                "resolved_from": self.config.kv_from,
                "used": sum(len(slot.cells) for slot in self._slots),
                "size": self.config.n_ctx,
            },
            "phase": phase_view(self._phases, now),
            "cursor": self._planner.cursor,
            "anchor": self._planner.anchor,
            "queue": {"depth": self.queue_depth, "oldest_s": 0.0 if oldest is None else max(0.0, now - oldest.since)},
            "totals": self._totals.as_dict(),
            "slots": [slot_view(slot, self._phases, self.config.n_ctx_slot) for slot in self._slots],
            "capabilities": capabilities(self._control.specs),
        }
