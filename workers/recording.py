"""What a run writes down: blocks and samples as soon as they are known, and how it ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from workers import lease, runlog
from workers.analysis.iterations import shortened
from workers.analysis.order import Step
from workers.block import Request
from workers.letting_go import CLOSED, NO_SLOTS, still_busy
from workers.load.reading import Answer
from workers.load.timing import Durations
from workers.models import Block, Run, RunState, Sample
from workers.restore import restore

log = logging.getLogger(__name__)

MOST_WARNINGS = 50


def add_warning(warnings: list[str], text: str) -> bool:
    """Each once, and not without end. Whether it was new."""
    new = text not in warnings and len(warnings) < MOST_WARNINGS
    if new:
        warnings.append(text)
    return new


CALIBRATION = Step(0, 0, "")


def open_block(run: Run, step: Step, version: int | None) -> Block:
    return Block.objects.create(
        run=run,
        index=step.index,
        pair=step.pair,
        arm=step.arm,
        floor=step.floor,
        policy_version=version,
        started_at=timezone.now(),
    )


def close_block(block: Block, timeline: dict[str, Any], warnings: list[str]) -> None:
    block.timeline, block.warnings, block.finished_at = timeline, warnings, timezone.now()
    block.save(update_fields=["timeline", "warnings", "finished_at"])


def add_sample(block: Block, request: Request, offset_s: float) -> Sample:
    ask, answer, times = request.ask, request.answer, request.times
    return Sample.objects.create(
        run_id=block.run_id,
        block=block,
        pair=block.pair,
        arm=block.arm,
        role=ask.role,
        slot=ask.slot,
        offset_s=offset_s,
        n_prompt=times.n_prompt,
        n_cached=times.n_cached,
        **moments(answer),
        **stages(times),
        ok=not request.fault,
        error=request.fault,
    )


def moments(answer: Answer) -> dict[str, Any]:
    """The columns of a sample that say when its answer came, and how many tokens it had."""
    return {
        "sent_at": answer.sent_at,
        "headers_at": answer.headers_at,
        "first_byte_at": answer.first_byte_at,
        "first_token_at": answer.first_token_at,
        "first_content_at": answer.first_content_at,
        "last_token_at": answer.last_token_at,
        "done_at": answer.done_at,
        # of the token events, counted from sending, to a hundredth
        "chunks_ms": [round((at - answer.sent_at) * 1000.0, 2) for at in answer.chunks],
        "n_generated": answer.n_generated,
        "tokens_from": answer.tokens_from,
    }


def stages(times: Durations) -> dict[str, Any]:
    """Those that say how long each stage took, in seconds."""
    return {name: getattr(times, name) for name in ("wall_s", "wait_s", "prompt_s", "ttft_s", "hold_s", "generation_s")}


def timeline(iterations: list[dict[str, Any]], requests: Sequence[Request], clock_offset_s: float) -> dict[str, Any]:
    """{"iterations": [...], "left_out": n, "requests": [{role, slot, sent_at, first_visit_at, ...}]}, on the client's clock."""
    return {**shortened(iterations, clock_offset_s), "requests": [_request(request) for request in requests]}


def _request(request: Request) -> dict[str, Any]:
    answer, times = request.answer, request.times
    return {
        "role": request.ask.role,
        "slot": request.ask.slot,
        "sent_at": answer.sent_at,
        "first_visit_at": None if times.wait_s is None else answer.sent_at + times.wait_s,
        "first_token_at": answer.first_token_at,
        "done_at": answer.done_at,
        "n_prompt": times.n_prompt,
        "n_cached": times.n_cached,
    }


def finish(run: Run, held: str, state: RunState, error: str, warnings: list[str]) -> None:
    """Sees that the slots are free, puts the policy back, and closes the run. Raises LeaseLost.

    What goes on is written down meanwhile: a server that does not answer can hold up the policy for longer than a stop may take.
    """
    if state is not RunState.FINISHED:
        _give_up(run, held, warnings)
    restored = restore(run)
    if restored.text:
        add_warning(warnings, restored.text)
    progress = {"progress_done": run.progress_total} if state is RunState.FINISHED else {}
    lease.write(
        run.pk,
        held,
        state=state,
        error=error,
        warnings=warnings,
        progress_text="",
        policy_restored=restored.done,
        finished_at=timezone.now(),
        **progress,
    )
    runlog.note(run.pk, f"{RunState(state).label}. {error}".strip(), "info" if state is RunState.FINISHED else "error")


def _give_up(run: Run, held: str, warnings: list[str]) -> None:
    lease.write(run.pk, held, progress_text=CLOSED)
    busy = still_busy(run)
    if busy and busy != NO_SLOTS:
        add_warning(warnings, busy)
    if busy:
        runlog.note(run.pk, busy, "info" if busy == NO_SLOTS else "warning")
    back = "" if run.policy_version is None else "The policy is being put back."
    lease.write(run.pk, held, warnings=warnings, progress_text=f"{CLOSED}. {busy} {back}".rstrip())
