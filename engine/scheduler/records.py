"""What is remembered of an iteration, small enough to keep thousands."""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduler.plan import Skip


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
