"""What is remembered of an iteration, small enough to keep thousands."""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduler.plan import EntryKind, Plan, Skip


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """One plan, run and settle. `t` is Unix seconds at its start; durations are milliseconds.

    `prompt` and `generation` are (slot, tokens) pairs of the batch. `phase` is continuous, pp, tg or idle. `cursor` is the
    cursor after the pass.
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


def record_of(plan: Plan, t: float, took_ms: tuple[float, float, float], queue_depth: int, error: str) -> IterationRecord:
    """`took_ms` of plan, run and settle."""
    prompt: list[tuple[int, int]] = []
    generation: list[tuple[int, int]] = []
    for entry in plan.entries:
        (prompt if entry.kind is EntryKind.PROMPT else generation).append((entry.slot, len(entry.tokens)))
    plan_ms, run_ms, settle_ms = took_ms
    return IterationRecord(
        iteration=plan.iteration,
        t=t,
        plan_ms=plan_ms,
        run_ms=run_ms,
        settle_ms=settle_ms,
        prompt=tuple(prompt),
        generation=tuple(generation),
        skipped=plan.skipped,
        held=plan.held,
        phase=plan.phase,
        cohort=plan.cohort,
        sealed=plan.sealed,
        anchor=plan.anchor,
        cursor=plan.cursor,
        policy_version=plan.policy_version,
        queue_depth=queue_depth,
        error=error,
    )
