"""What one request's times mean. Each is defined in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.load.client import Answer


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds; None where the stage was not reached or the server does not report it."""

    wall_s: float | None
    wait_s: float | None
    prompt_s: float | None
    ttft_s: float | None
    hold_s: float | None
    generation_s: float | None
    n_prompt: int | None
    n_cached: int | None


def durations(answer: Answer) -> Durations:
    """`wait_s` is the server's queue and wait times where it reports both, else what is left of the wall time."""
    timings = answer.timings
    wall = _between(answer.sent_at, answer.done_at)
    prompt, generation, hold = (_seconds(timings, name) for name in ("prompt_ms", "predicted_ms", "hold_ms"))
    return Durations(
        wall_s=wall,
        wait_s=_wait(timings, wall, prompt, generation),
        prompt_s=prompt,
        ttft_s=_between(answer.sent_at, answer.first_token_at),
        hold_s=hold,
        generation_s=generation,
        n_prompt=_sum(timings, "cache_n", "prompt_n"),
        n_cached=_count(timings, "cache_n"),
    )


def _wait(timings: Mapping[str, Any], wall: float | None, prompt: float | None, generation: float | None) -> float | None:
    queue, wait = _seconds(timings, "queue_ms"), _seconds(timings, "wait_ms")
    if queue is not None and wait is not None:
        return queue + wait
    if wall is None or prompt is None or generation is None:
        return None
    return max(0.0, wall - prompt - generation)


def _between(start: float, end: float | None) -> float | None:
    return None if end is None else end - start


def _seconds(timings: Mapping[str, Any], name: str) -> float | None:
    value = timings.get(name)
    return value / 1000.0 if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(timings: Mapping[str, Any], name: str) -> int | None:
    value = timings.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sum(timings: Mapping[str, Any], first: str, second: str) -> int | None:
    one, two = _count(timings, first), _count(timings, second)
    return None if one is None or two is None else one + two
