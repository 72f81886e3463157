"""The sentence that says why a slot waits: used alike in records, in the slot table and in the API. It names who and how far."""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler.phases import PhaseName, Phases
from engine.scheduler.plan import Entry, EntryKind
from engine.scheduler.slots import PROMPT_DONE, Slot, SlotState

NEXT_BATCH = "not in a batch yet, the next one decides"


def batch_full(entries: Sequence[Entry], n_batch: int) -> str:
    prompts = [entry for entry in entries if entry.kind is EntryKind.PROMPT]
    if not prompts:
        return f"batch full, {len(entries)} generating slots took {len(entries)} of {n_batch}"
    return f"batch full, {_took_most(prompts)} of {n_batch}"


def chunk_full(entries: Sequence[Entry], chunk: int) -> str:
    """The policy's chunk was used up before the batch was."""
    return f"prefill chunk full, {_took_most([entry for entry in entries if entry.kind is EntryKind.PROMPT])} of {chunk}"


def _took_most(prompts: Sequence[Entry]) -> str:
    most = max(prompts, key=lambda entry: len(entry.tokens))
    return f"slot {most.slot} took {len(most.tokens)}"


def mismatch(anchor: int | None) -> str:
    return f"group mismatch with slot {anchor}"


def too_big(need: int, room: int, n_batch: int) -> str:
    return f"needs {need} tokens in one batch, {room} of {n_batch} are free"


def parked(n_prompt: int) -> str:
    return f"parked until the KV cache has room for its {n_prompt} tokens"


def not_continuous(anchor: int | None) -> str:
    return f"continuous batching is off and slot {anchor} generates"


def parent(task_id: int) -> str:
    return f"parent task {task_id} has not finished its prompt"


def held(phases: Phases) -> str:
    """Names the member with the most prompt tokens left."""
    if phases.cohort is None or phases.name is not PhaseName.PP:
        return "held: let go with the next batch"
    unfinished = [slot for slot in phases.members() if slot.state not in PROMPT_DONE and slot.parent is None]
    if not unfinished:
        return f"held: cohort {phases.cohort.id} is complete, let go with the next batch"
    slowest = max(unfinished, key=lambda slot: (slot.left, -slot.id))
    percent = 100 * slowest.done // max(1, len(slowest.prompt))
    return f"held: cohort {phases.cohort.id} waits for slot {slowest.id} ({percent} %)"


def queued(phases: Phases) -> str:
    if phases.cohort is None:
        return f"queued: cohort {phases.next_id} begins with the next batch"
    if phases.name is PhaseName.TG:
        return f"queued: cohort {phases.cohort.id} generates, joins {phases.next_id}"
    return f"queued: cohort {phases.cohort.id} is sealed, joins {phases.next_id}"


def paused(phases: Phases) -> str:
    cohort = phases.next_id - 1
    return (
        f"paused: cohort {cohort} processes prompts"
        if phases.name is PhaseName.PP
        else f"paused: had its tokens of cohort {cohort}"
    )


def owed(debt_s: float) -> str:
    if debt_s <= 0.0:
        return "decode share: generation has the first batch"
    return f"decode share: generation is owed {debt_s * 1000:.0f} ms"


def of(slot: Slot, phases: Phases) -> str:
    """What the slot waits for now, `""` when it does not wait."""
    if slot.state is SlotState.HELD:
        return held(phases)
    if slot.state is SlotState.QUEUED:
        return queued(phases)
    if slot.state is SlotState.WAITING:
        return parent(slot.parent) if slot.parent is not None else slot.why or NEXT_BATCH
    return slot.why
