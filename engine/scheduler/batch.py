"""Builds one batch: decode tokens first, then prompt tokens of slots that may share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduler import waits
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.orders import Division, Take, divide, next_cursor, visit_order
from engine.scheduler.plan import Entry, EntryKind, Skip, Start, make
from engine.scheduler.policy import Policy, PrefillOrder
from engine.scheduler.slots import Slot, SlotState
from engine.scheduler.task import Group

# looked up once: these are used for every slot in every batch
PROMPT, IN_BATCH = EntryKind.PROMPT, SlotState.PROMPT


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
    longest: int = 0  # most batches in a row that passed a slot over, this one included

    def skip(self, slot: Slot, reason: str, now: float, *, passed_over: bool = True) -> None:
        """`passed_over`: others were preferred; not so where a policy keeps the slot out of this batch."""
        if passed_over:
            slot.passed += 1
            self.longest = max(self.longest, slot.passed)
        if slot.state is SlotState.PROMPT:
            slot.enter(SlotState.WAITING, now)
        slot.why = reason
        self.skipped.append(Skip(slot.id, reason))


def add_generation(draft: Draft, generating: Sequence[Slot], now: float) -> None:
    """One token for each generating slot of one group: the draft's, else the first slot's. They may exceed n_batch."""
    if not generating:
        return
    if draft.anchor is None:
        draft.group, draft.anchor = generating[0].group, generating[0].id
    group, entries, kind = draft.group, draft.entries, EntryKind.GENERATION
    for slot in generating:
        if slot.group is group:
            slot.why = ""
            slot.passed = 0
            entries.append(make(Entry, (slot.id, slot.task_id, kind, (slot.last_token,), len(slot.cells), True, ())))
        else:
            draft.skip(slot, waits.mismatch(draft.anchor), now)
    draft.n_tokens = len(entries)


def add_prompts(
    draft: Draft,
    pending: list[Slot],
    slots: Sequence[Slot],
    *,
    config: SchedulerConfig,
    policy: Policy,
    cursor: int | None,
    equal: bool,
    leader: Slot | None,
    now: float,
) -> int | None:
    """Fills the rest of the batch; answers with the cursor after the pass. A leader comes first, in any order."""
    order = visit_order(pending, policy, cursor, len(slots))
    if leader is not None:
        order = sorted(order, key=lambda slot: slot is not leader)
    equal = equal or policy.prefill_order is PrefillOrder.FAIR
    room, chunk = config.n_batch - draft.n_tokens, policy.prefill_chunk
    division = divide(order, room, draft.group, chunk=chunk, equal=equal, stops=config.prompt_stops)
    if division.takes and draft.anchor is None:
        first = division.takes[0].slot
        draft.group, draft.anchor = first.group, first.id
    for take in division.takes:
        _add_prompt(draft, take, slots, now)
        draft.n_tokens += take.n
    _explain(draft, division, config.n_batch, chunk or 0, now)
    return next_cursor(cursor, division.takes, policy)


def _add_prompt(draft: Draft, take: Take, slots: Sequence[Slot], now: float) -> None:
    slot = take.slot
    if not slot.visited:
        _first_visit(draft, slot, now)
    if slot.state is not IN_BATCH:
        slot.enter(IN_BATCH, now)
    slot.why = ""
    slot.passed = 0
    prompt, begin = slot.prompt, len(slot.cells)
    end = begin + take.n
    last = end == len(prompt)
    copy_to = _start_children(draft, slot.task_id, slots) if last and slot.task is not None and slot.task.children else ()
    draft.entries.append(make(Entry, (slot.id, slot.task_id, PROMPT, prompt[begin:end], begin, last, copy_to)))


def _first_visit(draft: Draft, slot: Slot, now: float) -> None:
    assert slot.task is not None
    slot.visit(now)
    draft.starts.append(Start(slot.id, slot.task, slot.n_cached))


def _start_children(draft: Draft, parent: int, slots: Sequence[Slot]) -> tuple[int, ...]:
    children = [slot for slot in slots if slot.parent == parent]
    for child in children:
        assert child.task is not None
        child.cells.clear()
        draft.child_starts.append(Start(child.id, child.task, 0))
    return tuple(child.id for child in children)


def _explain(draft: Draft, division: Division, n_batch: int, chunk: int, now: float) -> None:
    if division.later:
        reason = waits.chunk_full(draft.entries, chunk)
        for slot in division.later:
            draft.skip(slot, reason, now)
    if division.full:
        reason = waits.batch_full(draft.entries, n_batch)
        for slot in division.full:
            draft.skip(slot, reason, now)
    for slot, room in division.too_big:
        draft.skip(slot, waits.too_big(slot.left, room, n_batch), now)
    for slot in division.mismatched:
        draft.skip(slot, waits.mismatch(draft.anchor), now)
