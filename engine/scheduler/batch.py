"""Builds one batch: decode tokens first, then prompt tokens of slots that may share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduler import waits
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.orders import Division, divide, next_cursor, visit_order
from engine.scheduler.plan import Entry, EntryKind, Skip, Start
from engine.scheduler.policy import Policy, PrefillOrder
from engine.scheduler.slots import Slot, SlotState
from engine.scheduler.task import Group


@dataclass(slots=True)
class Draft:
    """A batch in the making. `anchor` is the slot whose group decides who may share it; None until a token is in."""

    entries: list[Entry] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    child_starts: list[Start] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    group: Group | None = None
    anchor: int | None = None
    n_tokens: int = 0

    def skip(self, slot: Slot, reason: str, now: float) -> None:
        if slot.state is SlotState.PROMPT:
            slot.enter(SlotState.WAITING, now)
        slot.why = reason
        self.skipped.append(Skip(slot.id, reason))


def add_generation(draft: Draft, generating: Sequence[Slot], now: float) -> None:
    """One token for each generating slot of the first one's group. They may exceed n_batch, as in llama-server."""
    for slot in generating:
        if draft.group is None:
            draft.group, draft.anchor = slot.group, slot.id
        elif slot.group is not draft.group:
            draft.skip(slot, waits.mismatch(draft.anchor), now)
            continue
        slot.why = ""
        draft.entries.append(Entry(slot.id, slot.task_id, EntryKind.GENERATION, (slot.last_token,), len(slot.cells), True))
    draft.n_tokens = len(draft.entries)


def add_prompts(
    draft: Draft,
    pending: list[Slot],
    slots: Sequence[Slot],
    *,
    config: SchedulerConfig,
    policy: Policy,
    cursor: int | None,
    equal: bool,
    now: float,
) -> int | None:
    """Fills the rest of the batch; answers with the cursor after the pass."""
    if draft.entries and not config.cont_batching:
        for slot in pending:
            draft.skip(slot, waits.not_continuous(draft.anchor), now)
        return cursor
    order = visit_order(pending, policy, cursor, len(slots))
    equal = equal or policy.prefill_order is PrefillOrder.FAIR
    division = divide(order, config.n_batch - draft.n_tokens, draft.group, chunk=policy.prefill_chunk, equal=equal)
    for take in division.takes:
        _add_prompt(draft, take.slot, take.n, slots, now)
    _explain(draft, division, config.n_batch, now)
    return next_cursor(cursor, division.takes, policy)


def _add_prompt(draft: Draft, slot: Slot, n: int, slots: Sequence[Slot], now: float) -> None:
    task = slot.task
    assert task is not None
    if not slot.visited:
        slot.visit(now)
        draft.starts.append(Start(slot.id, task, slot.n_cached))
    if draft.anchor is None:
        draft.group, draft.anchor = slot.group, slot.id
    slot.enter(SlotState.PROMPT, now)
    slot.why = ""
    position = len(slot.cells)
    last = position + n == len(slot.prompt)
    children = [child for child in slots if child.parent == task.id] if last and task.children else []
    for child in children:
        assert child.task is not None
        draft.child_starts.append(Start(child.id, child.task, 0))
    tokens = slot.prompt[position : position + n]
    copy_to = tuple(child.id for child in children)
    draft.entries.append(Entry(slot.id, task.id, EntryKind.PROMPT, tokens, position, last, copy_to))
    draft.n_tokens += n


def _explain(draft: Draft, division: Division, n_batch: int, now: float) -> None:
    if division.full:
        reason = waits.batch_full(draft.entries, n_batch)
        for slot in division.full:
            draft.skip(slot, reason, now)
    for slot, room in division.too_big:
        draft.skip(slot, waits.too_big(slot.left, room, n_batch), now)
    for slot in division.mismatched:
        draft.skip(slot, waits.mismatch(draft.anchor), now)
