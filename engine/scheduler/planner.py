"""Builds each batch from where the slots stand: who generates, who may put prompt tokens in, who is left out and why."""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler import turns, waits
from engine.scheduler.batch import Draft, add_generation, add_prompts
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.overflow import Overflow
from engine.scheduler.phases import Phases
from engine.scheduler.plan import EntryKind, Plan, Skip, Wish, make
from engine.scheduler.policy import MOST_DRAFTED, Policy, Speculative
from engine.scheduler.share import ShareAccount
from engine.scheduler.shifting import Shifting
from engine.scheduler.slots import PENDING, Slot, SlotState
from engine.scheduler.speculation import Speculation


class Planner:
    """Keeps what one batch leaves behind for the next: the cursor, who has waited for long, what prompts owe to generation.

    `planned` is the number of the last plan with entries, `anchor` the slot that decided what might share its batch.
    `speculation` is there while the policy asks for drafts.
    """

    def __init__(self, config: SchedulerConfig, slots: Sequence[Slot], phases: Phases, shifting: Shifting) -> None:
        self._config = config
        self._shifting = shifting
        self._is_pool = config.kv_mode == "unified"
        self.overflow = Overflow(config, slots, phases)
        self._slots = slots
        self._phases = phases
        self._share = ShareAccount()
        self._longest = 0
        self._patience = turns.patience(config.n_slots)
        self.planned = 0
        self.cursor: int | None = None
        self.anchor: int | None = None
        self.speculation: Speculation | None = None

    def build(self, policy: Policy, version: int, now: float) -> Plan:
        draft = Draft()
        generating, pending, held = self._sort_slots(draft)
        if pending and self._is_pool:
            pending = self.overflow.without_parked(draft, generating, pending, self.planned + 1)
        self._fill(draft, generating, pending, policy, now)
        purges = self.overflow.purges(draft.n_tokens) if self._is_pool else ()
        drafted: int = 0
        wishes: tuple[Wish, ...] = ()
        if policy.speculative is not Speculative.OFF:
            drafted, wishes = self._speculate(draft, policy, now)
        elif self.speculation is not None:
            self.speculation = None
        if draft.entries:
            self.planned += 1
            self.anchor = draft.anchor
        phases = self._phases
        # all fields in their order, as with every `make`
        plan: Plan = make(
            Plan,
            (
                self.planned,
                tuple(draft.starts),
                tuple(draft.entries),
                tuple(draft.child_starts),
                draft.group,
                draft.anchor,
                tuple(draft.skipped),
                purges,
                phases.name.value,
                None if phases.cohort is None else phases.cohort.id,
                phases.sealed,
                held,
                self.cursor,
                version,
                self._shifting.take(draft.entries),
                drafted,
                wishes,
            ),
        )
        return plan

    def _speculate(self, draft: Draft, policy: Policy, now: float) -> tuple[int, tuple[Wish, ...]]:
        """Puts drafts into a batch of decode tokens alone, in the room that these leave in one sub-batch.

        Beside prompts nothing is drafted, so no draft keeps a prompt waiting; in a pool drafts take free cells alone.
        """
        if self.speculation is None:
            self.speculation = Speculation(self._config.n_ctx_slot)
        self.speculation.follow(policy)
        if not draft.entries or draft.entries[-1].kind is not EntryKind.GENERATION:
            return 0, ()
        room = min(self._config.n_batch, self._config.n_ubatch) - draft.n_tokens
        if self._is_pool:
            room = min(room, self._config.n_ctx - sum(len(slot.cells) for slot in self._slots) - draft.n_tokens)
        drafts = self.speculation.draft(draft.entries, self._slots, max(0, min(room, MOST_DRAFTED)), self._phases.turn_limit, now)
        draft.entries, drafted, wishes = drafts
        draft.n_tokens += drafted
        return drafted, wishes

    def landed(self, plan: Plan, now: float) -> None:
        """The batch has ended, well or not: its time counts on the share's account."""
        if self._share.is_kept:
            self._share.book(now, with_prompts=any(entry.kind is EntryKind.PROMPT for entry in plan.entries))

    def _fill(self, draft: Draft, generating: list[Slot], pending: list[Slot], policy: Policy, now: float) -> None:
        """Decode tokens, then prompt tokens unless something keeps the prompts out of this batch as a whole."""
        kept_out = ""
        contended = bool(generating and pending)
        if contended and not self._config.cont_batching:
            kept_out, contended = waits.not_continuous(generating[0].id), False
        if self._share.prompts_wait(policy.decode_share, contended=contended, now=now):
            kept_out = waits.owed(self._share.debt)
        leader = None
        if self._longest >= self._patience:
            leader = self._leader(generating, [] if kept_out else pending, policy)
        if leader is not None:
            draft.group, draft.anchor = leader.group, leader.id
        add_generation(draft, generating, now)
        if kept_out:
            for slot in pending:
                draft.skip(slot, kept_out, now, passed_over=False)
        elif pending:
            self.cursor = add_prompts(
                draft,
                pending,
                self._slots,
                config=self._config,
                policy=policy,
                cursor=self.cursor,
                equal=self._phases.is_barrier,
                leader=leader,
                now=now,
            )
        self._longest = max(draft.longest, self._longest if kept_out else 0)

    def _leader(self, generating: list[Slot], pending: list[Slot], policy: Policy) -> Slot | None:
        """Who leads when the order takes turns; in any order a prompt that is served beside a cohort can lead."""
        if not policy.takes_turns:
            generating = []
            pending = [slot for slot in pending if not slot.member] if self._phases.is_barrier else []
        return turns.leader(generating, pending, self._patience, self._config.n_batch)

    def _sort_slots(self, draft: Draft) -> tuple[list[Slot], list[Slot], tuple[int, ...]]:
        """Generating slots, slots with prompt work that may be served, ids of held ones; the rest is skipped with a sentence."""
        generating, pending, held = [], [], []
        for slot in self._slots:
            state = slot.state
            if state is SlotState.GENERATING:
                if slot.paused_at is None:
                    generating.append(slot)
                else:
                    draft.skip(slot, waits.paused(self._phases), 0.0, passed_over=False)
            elif state is SlotState.HELD:
                held.append(slot.id)
            elif state in PENDING and slot.parent is None:
                pending.append(slot)
            elif state is not SlotState.IDLE:
                draft.skipped.append(Skip(slot.id, waits.of(slot, self._phases)))
        return generating, pending, tuple(held)
