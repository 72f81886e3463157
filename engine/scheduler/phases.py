"""Prompt processing (PP) and token generation (TG): side by side, or one after the other for a cohort of slots.

Under a barrier every slot that is busy when no cohort runs joins a new one. Arrivals join until it is sealed: by the first
member whose prompt is done, or when a window of time has passed. Held first tokens are let go when every member's prompt is done.
The next cohort begins when the last member has left its slot, or, under a limit of generated tokens, when each member has had
its tokens and a prompt waits: members that are not done then pause for those prompts and go on with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.scheduler.policy import BarrierJoin, PhaseMode, Policy
from engine.scheduler.slots import PENDING, PROMPT_DONE, Slot, SlotState


class PhaseName(StrEnum):
    CONTINUOUS = "continuous"
    IDLE = "idle"
    PP = "pp"
    TG = "tg"


@dataclass(slots=True)
class Cohort:
    """`completed`: a member's prompt was done, whatever became of that member."""

    id: int
    began_at: float
    sealed: bool = False
    completed: bool = False


class Phases:
    """Who may be served now. Membership itself lies with the slots (`Slot.member`) and ends with their task."""

    def __init__(self, slots: Sequence[Slot], mode: PhaseMode) -> None:
        self._slots = slots
        self._mode = mode
        self.name = PhaseName.CONTINUOUS if mode is PhaseMode.CONTINUOUS else PhaseName.IDLE
        self.cohort: Cohort | None = None
        self.next_id = 1
        self._window_s: float | None = None
        self._max_hold_s: float | None = None
        self._max_tokens: int | None = None

    @property
    def is_barrier(self) -> bool:
        return self._mode is PhaseMode.BARRIER

    @property
    def sealed(self) -> bool:
        return self.cohort is not None and self.cohort.sealed

    @property
    def turn_limit(self) -> int | None:
        """Tokens that a member of the cohort in hand may generate while a prompt waits; None without such a limit."""
        return self._max_tokens if self.name is PhaseName.TG else None

    def members(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.member]

    def follow(self, policy: Policy, now: float) -> None:
        """Switches between batches. To a barrier with slots generating: they drain as a cohort, prompts wait for the next."""
        self._window_s = policy.barrier_join_window_ms / 1000 if policy.barrier_join is BarrierJoin.WINDOW else None
        self._max_hold_s = None if policy.barrier_max_hold_ms is None else policy.barrier_max_hold_ms / 1000
        if policy.barrier_max_generation_tokens is None and self._max_tokens is not None and self.name is PhaseName.TG:
            for slot in self.members():
                slot.resume(now)
        self._max_tokens = policy.barrier_max_generation_tokens
        if policy.phase is self._mode:
            return
        self._mode = policy.phase
        if self._mode is PhaseMode.CONTINUOUS:
            self._open_all(now)
        else:
            self._drain(now)

    def _open_all(self, now: float) -> None:
        self.name, self.cohort = PhaseName.CONTINUOUS, None
        for slot in self._slots:
            slot.member = False
            slot.resume(now)
            if slot.state is SlotState.QUEUED:
                slot.enter(SlotState.WAITING, now)

    def _drain(self, now: float) -> None:
        self.name = PhaseName.IDLE
        if any(slot.state in PROMPT_DONE for slot in self._slots):
            self._new_cohort(PhaseName.TG, now, sealed=True)
        for slot in self._slots:
            slot.member = slot.state in PROMPT_DONE
            slot.turn_from = slot.n_generated
            self._leave_out(slot, now)

    def place(self, slot: Slot, now: float) -> None:
        """A task has just taken this slot: it may be served at once, or waits for the next cohort.

        Who needs no token never waits for a cohort that it cannot join: it is served beside it.
        """
        self._seal_if_due(now)
        if not self.is_barrier:
            slot.enter(SlotState.WAITING, now)
        elif self.name is PhaseName.PP and not self.sealed and self.members():
            slot.member = True
            slot.enter(SlotState.WAITING, now)
        elif self.cohort is not None and not slot.needs_token:
            slot.enter(SlotState.WAITING, now)
        else:
            slot.enter(SlotState.QUEUED, now)

    def begin(self, now: float) -> None:
        """Before a batch is built: a cohort without members is over, and busy slots without a cohort form one."""
        if not self.is_barrier:
            return
        self.close_if_empty()
        self._seal_if_due(now)
        if self._max_tokens is not None and self.name is PhaseName.TG:
            self._deal_out(self._max_tokens, now)
        if self.cohort is None and any(slot.task is not None for slot in self._slots):
            self._gather(now)
        elif self.name is PhaseName.PP and all(slot.state is SlotState.GENERATING for slot in self.members()):
            self._open(now)

    def _deal_out(self, limit: int, now: float) -> None:
        """While a prompt waits, a member that had its tokens pauses; when all had theirs, their cohort is over."""
        waiting = any(slot.state is SlotState.QUEUED for slot in self._slots)
        members = self.members()
        for slot in members:
            if waiting and slot.n_generated - slot.turn_from >= limit:
                slot.pause(now)
            else:
                slot.resume(now)
        if all(slot.paused_at is not None for slot in members):
            self.cohort = None

    def _gather(self, now: float) -> None:
        self._new_cohort(PhaseName.PP, now, sealed=False)
        for slot in self._slots:
            if slot.task is None:
                continue
            slot.member = True
            if slot.state is SlotState.GENERATING:
                slot.pause(now)
            else:
                slot.enter(SlotState.WAITING, now)

    def prompt_done(self, slot: Slot) -> None:
        """Any member's finished prompt counts, an embedding's too."""
        if self.cohort is not None and slot.member:
            self.cohort.completed = True
            self.cohort.sealed = self.cohort.sealed or self._window_s is None

    def _seal_if_due(self, now: float) -> None:
        cohort = self.cohort
        if cohort is not None and not cohort.sealed:
            cohort.sealed = cohort.completed if self._window_s is None else now - cohort.began_at >= self._window_s

    def let_go(self, now: float) -> list[Slot]:
        """After a batch: the held slots whose first token may be shown now, in slot order."""
        if self.is_barrier:
            if self.name is PhaseName.PP:
                self._seal_if_due(now)
                self._leave_behind(now)
                members = self.members()
                if members and all(slot.state in PROMPT_DONE for slot in members):
                    self._open(now)
            if self.name is not PhaseName.TG:
                return []
        return [slot for slot in self._slots if slot.state is SlotState.HELD]

    def _open(self, now: float) -> None:
        """Nobody joins from here on: with every prompt done, waiting for a window to pass would keep the server idle."""
        assert self.cohort is not None
        self.name, self.cohort.sealed = PhaseName.TG, True
        for slot in self.members():
            slot.resume(now)
            slot.turn_from = slot.n_generated

    def _leave_behind(self, now: float) -> None:
        """Once a member was held or paused for too long, unfinished members leave for the next cohort with what they have."""
        limit = self._max_hold_s
        if limit is None:
            return
        since = [slot.prompt_done_at if slot.state is SlotState.HELD else slot.paused_at for slot in self.members()]
        idle_since = [at for at in since if at is not None]
        if not idle_since or now - min(idle_since) < limit:
            return
        for slot in self.members():
            if slot.state in PENDING:
                slot.member = False
                self._leave_out(slot, now)

    @staticmethod
    def _leave_out(slot: Slot, now: float) -> None:
        if slot.state in PENDING and slot.needs_token:
            slot.enter(SlotState.QUEUED, now)

    def close_if_empty(self) -> None:
        if self.cohort is not None and not any(slot.member for slot in self._slots):
            self.name, self.cohort = PhaseName.IDLE, None

    def _new_cohort(self, name: PhaseName, now: float, *, sealed: bool) -> None:
        self.name = name
        self.cohort = Cohort(self.next_id, now, sealed)
        self.next_id += 1
