"""What a run writes down: blocks and samples as soon as they are known, and how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from scheduler_api.exceptions import SchedulerApiError
from workers import lease, runlog, target
from workers.analysis.iterations import shortened
from workers.analysis.order import Step
from workers.block import Request
from workers.errors import RunFailed
from workers.load.reading import Answer
from workers.models import Block, Run, RunState, Sample
from workers.restore import restore
from workers.scenarios import ScenarioError, load
from workers.scenarios.reading import read

log = logging.getLogger(__name__)

MOST_WARNINGS = 50
IDLE_WITHIN_S = 0.4  # how long a stop waits for the slots that it gave up


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
        sent_at=answer.sent_at,
        first_token_at=answer.first_token_at,
        done_at=answer.done_at,
        wall_s=times.wall_s,
        wait_s=times.wait_s,
        prompt_s=times.prompt_s,
        ttft_s=times.ttft_s,
        hold_s=times.hold_s,
        generation_s=times.generation_s,
        offset_s=offset_s,
        n_prompt=times.n_prompt,
        n_cached=times.n_cached,
        n_generated=answer.n_generated,
        tokens_from=answer.tokens_from,
        headers_at=answer.headers_at,
        first_byte_at=answer.first_byte_at,
        first_content_at=answer.first_content_at,
        last_token_at=answer.last_token_at,
        chunks_ms=chunks_ms(answer),
        ok=not request.fault,
        error=request.fault,
    )


def chunks_ms(answer: Answer) -> list[float]:
    """Times of the token events since sending, to a hundredth of a millisecond."""
    return [round((at - answer.sent_at) * 1000.0, 2) for at in answer.chunks]


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
    """Puts the policy back, sees that the slots are free, and closes the run. Raises LeaseLost."""
    restored = restore(run)
    if restored.text:
        add_warning(warnings, restored.text)
    if state is not RunState.FINISHED and (text := _still_busy(run)):
        add_warning(warnings, text)
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


def _slots(run: Run) -> set[int] | None:
    """The slots that a run's requests name; None when the server chose some."""
    if not run.scenario_text:
        scenario = load(run.scenario)
        return {scenario.cold.slot, scenario.short.slot}
    named = {stream.slot for stream in read(run.scenario_text).streams}
    return None if None in named else {slot for slot in named if slot is not None}


def _still_busy(run: Run) -> str:
    """Closed connections free their slots at the next batch; what is not free by then is said."""
    deadline = time.monotonic() + IDLE_WITHIN_S
    try:
        slots = _slots(run)
        while busy := target.busy_slots(run.server, slots):
            if time.monotonic() >= deadline:
                count = f"{len(busy)} slot{'s' if len(busy) > 1 else ''}"
                return f"{count} still busy at the end ({', '.join(map(str, busy))}): a batch in flight runs to its end."
            time.sleep(0.05)
    except (SchedulerApiError, RunFailed, ScenarioError) as failure:
        log.info("Run %d: whether its slots are free is unknown: %s", run.pk, failure)
    return ""
