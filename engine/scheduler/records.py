"""What is remembered of an iteration, small enough to keep thousands."""

from __future__ import annotations

from typing import NamedTuple

from engine.scheduler.plan import EntryKind, Plan, Skip, make


class IterationRecord(NamedTuple):
    """One plan, run and settle. `t` is Unix seconds at its start; durations are milliseconds.

    `prompt` and `generation` are (slot, tokens) pairs of the batch. `phase` is continuous, pp, tg or idle. `cursor` is the
    cursor after the pass. `drafted` are (slot, drafted, accepted): drafted tokens are in `generation` too.
    """

    iteration: int
    t: float
    plan_ms: float
    run_ms: float
    settle_ms: float
    prompt: tuple[tuple[int, int], ...]
    generation: tuple[tuple[int, int], ...]
    skipped: tuple[Skip, ...]
    held: tuple[int, ...]
    phase: str
    cohort: int | None
    sealed: bool
    anchor: int | None
    cursor: int | None
    policy_version: int
    queue_depth: int
    error: str = ""
    drafted: tuple[tuple[int, int, int], ...] = ()


def record_of(
    plan: Plan,
    t: float,
    took_ms: tuple[float, float, float],
    queue_depth: int,
    error: str,
    drafted: tuple[tuple[int, int, int], ...] = (),
) -> IterationRecord:
    """`took_ms` of plan, run and settle."""
    kind = EntryKind.PROMPT
    prompt = tuple([(entry.slot, len(entry.tokens)) for entry in plan.entries if entry.kind is kind])
    generation = tuple([(entry.slot, len(entry.tokens)) for entry in plan.entries if entry.kind is not kind])
    served = (plan.iteration, t, *took_ms, prompt, generation, plan.skipped, plan.held)
    stand = (plan.phase, plan.cohort, plan.sealed, plan.anchor, plan.cursor, plan.policy_version)
    record: IterationRecord = make(IterationRecord, (*served, *stand, queue_depth, error, drafted))
    return record
