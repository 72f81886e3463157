"""llama-server's `timings` object, and the engine's own stages beside it. All durations in milliseconds."""

from __future__ import annotations

from typing import Any

from engine.delivery import Handle
from engine.scheduler.plan import Finished


def _span_ms(start: float | None, end: float | None) -> float:
    return round((end - start) * 1e3, 3) if start is not None and end is not None and end > start else 0.0


def _rates(n: int, ms: float, prefix: str) -> dict[str, float]:
    return {
        f"{prefix}_per_token_ms": round(ms / n, 4) if n else 0.0,
        f"{prefix}_per_second": round(n * 1e3 / ms, 3) if ms else 0.0,
    }


def _timings(n_cached: int, n_prompt: int, prompt_ms: float, n_predicted: int, predicted_ms: float) -> dict[str, Any]:
    return {
        "cache_n": n_cached,
        "prompt_n": n_prompt,
        "prompt_ms": prompt_ms,
        **_rates(n_prompt, prompt_ms, "prompt"),
        "predicted_n": n_predicted,
        "predicted_ms": predicted_ms,
        **_rates(n_predicted, predicted_ms, "predicted"),
    }


def final_timings(finished: Finished) -> dict[str, Any]:
    """`queue_ms + wait_ms + prompt_ms + hold_ms + predicted_ms` is `total_ms`, from submission to the end; `skipped_ms` is a part
    of `prompt_ms`, and `paused_ms` of `predicted_ms`. Drafts are counted where there were some."""
    timings = _timings(
        finished.n_cached,
        finished.n_prompt - finished.n_cached,
        _span_ms(finished.first_visit_at, finished.prompt_done_at),
        finished.n_generated,
        _span_ms(finished.first_token_at, finished.finished_at),
    )
    timings["queue_ms"] = _span_ms(finished.submitted_at, finished.assigned_at)
    timings["wait_ms"] = _span_ms(finished.assigned_at, finished.first_visit_at)
    timings["skipped_ms"] = round(finished.skipped_s * 1e3, 3)
    timings["hold_ms"] = _span_ms(finished.prompt_done_at, finished.first_token_at)
    timings["paused_ms"] = round(finished.paused_s * 1e3, 3)
    timings["total_ms"] = _span_ms(finished.submitted_at, finished.finished_at)
    if finished.n_drafted:
        timings["draft_n"], timings["draft_n_accepted"] = finished.n_drafted, finished.n_accepted
    return timings


def running_timings(handle: Handle, n_decoded: int, at: float) -> dict[str, Any]:
    """As of one token: what is known of the first stages, and the generation so far."""
    prompt_done_at = handle.prompt_done_at or handle.first_token_at  # a child has no prompt batch of its own
    return _timings(
        handle.n_cached,
        len(handle.task.prompt) - handle.n_cached,
        _span_ms(handle.visited_at, prompt_done_at),
        n_decoded,
        _span_ms(handle.first_token_at, at),
    )
