"""Prompt processing (PP) and token generation (TG): side by side, or one after the other for a cohort of slots.

Under a barrier every slot that is busy when no cohort runs joins a new one. Arrivals join until the first member's prompt is
done, which seals the cohort. Held first tokens are let go when every member's prompt is done, and the next cohort begins when the
last member has left its slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.scheduler.policy import PhaseMode, Policy
from engine.scheduler.slots import PENDING, PROMPT_DONE, Slot, SlotState


class PhaseName(StrEnum):
    CONTINUOUS = "continuous"
    IDLE = "idle"
    PP = "pp"
    TG = "tg"


@dataclass(slots=True)
class Cohort:
    id: int
    began_at: float
    sealed: bool = False


class Phases:
    """Who may be served now. Membership itself lies with the slots (`Slot.member`) and ends with their task."""

    def __init__(self, slots: Sequence[Slot], mode: PhaseMode) -> None:
        self._slots = slots
        self._mode = mode
        self.name = PhaseName.CONTINUOUS if mode is PhaseMode.CONTINUOUS else PhaseName.IDLE
        self.cohort: Cohort | None = None
        self.next_id = 1
        self._max_hold_s: float | None = None

    @property
    def prompts_allowed(self) -> bool:
        return self.name in (PhaseName.CONTINUOUS, PhaseName.PP)

    @property
    def is_barrier(self) -> bool:
        return self._mode is PhaseMode.BARRIER

    @property
    def sealed(self) -> bool:
        return self.cohort is not None and self.cohort.sealed

    def members(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.member]

    def follow(self, policy: Policy, now: float) -> None:
        """Switches between batches. To a barrier with slots generating: they drain as a cohort, prompts wait for the next."""
        self._max_hold_s = None if policy.barrier_max_hold_ms is None else policy.barrier_max_hold_ms / 1000
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
            if slot.state is SlotState.QUEUED:
                slot.enter(SlotState.WAITING, now)

    def _drain(self, now: float) -> None:
        self.name = PhaseName.IDLE
        if any(slot.state in PROMPT_DONE for slot in self._slots):
            self._new_cohort(PhaseName.TG, now, sealed=True)
        for slot in self._slots:
            slot.member = slot.state in PROMPT_DONE
            if slot.state in PENDING:
                slot.enter(SlotState.QUEUED, now)

    def place(self, slot: Slot, now: float) -> None:
        """A task has just taken this slot: it may be served at once, or waits for the next cohort."""
        if not self.is_barrier:
            slot.enter(SlotState.WAITING, now)
        elif self.name is PhaseName.PP and not self.sealed and self.members():
            slot.member = True
            slot.enter(SlotState.WAITING, now)
        else:
            slot.enter(SlotState.QUEUED, now)

    def begin(self, now: float) -> None:
        """Before a batch is built: a cohort without members is over, and busy slots without a cohort form one."""
        if not self.is_barrier:
            return
        self.close_if_empty()
        if self.cohort is None and any(slot.task is not None for slot in self._slots):
            self._new_cohort(PhaseName.PP, now, sealed=False)
            for slot in self._slots:
                if slot.task is not None:
                    slot.member = True
                    slot.enter(SlotState.WAITING, now)

    def prompt_done(self, slot: Slot) -> None:
        """Any member's finished prompt seals, an embedding's too."""
        if self.cohort is not None and slot.member:
            self.cohort.sealed = True

    def let_go(self, now: float) -> list[Slot]:
        """After a batch: the held slots whose first token may be shown now, in slot order."""
        if self.is_barrier:
            if self.name is PhaseName.PP and self.sealed:
                self._leave_behind(now)
                if all(slot.state in PROMPT_DONE for slot in self.members()):
                    self.name = PhaseName.TG
            if self.name is not PhaseName.TG:
                return []
        return [slot for slot in self._slots if slot.state is SlotState.HELD]

    def _leave_behind(self, now: float) -> None:
        """Once a member was held for too long, unfinished members leave the cohort for the next one, with all they have done."""
        limit = self._max_hold_s
        held_since = [s.prompt_done_at for s in self.members() if s.state is SlotState.HELD and s.prompt_done_at is not None]
        if limit is None or not held_since or now - min(held_since) < limit:
            return
        for slot in self.members():
            if slot.state in PENDING:
                slot.member = False
                slot.enter(SlotState.QUEUED, now)

    def close_if_empty(self) -> None:
        if self.cohort is not None and not any(slot.member for slot in self._slots):
            self.name, self.cohort = PhaseName.IDLE, None

    def _new_cohort(self, name: PhaseName, now: float, *, sealed: bool) -> None:
        self.name = name
        self.cohort = Cohort(self.next_id, now, sealed)
        self.next_id += 1
