"""Ended tasks as an engine tells of them, read with care. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler_api.kinds.fields import Json, count, mapping, number, text, whole

_COUNTS = ("n_prompt", "n_cached", "n_generated")
_TIMES = ("assigned_at", "first_visit_at", "prompt_done_at", "first_token_at")
_SECONDS = ("skipped_s", "paused_s", "worst_gap_s")


def task_of(raw: Json) -> Json | None:
    """A task as frames carry it; None when it has no number, no slot or no times."""
    n, i, slot = count(raw.get("n")), count(raw.get("i")), whole(raw.get("slot"))
    submitted, finished = number(raw.get("submitted_at")), number(raw.get("finished_at"))
    if n is None or i is None or slot is None or submitted is None or finished is None:
        return None
    return {
        "n": n,
        "i": i,
        "task": count(raw.get("task")),
        "slot": max(slot, -1),
        "client": text(raw.get("client")),
        "group": text(raw.get("group")),
        "reason": text(raw.get("reason"), 20) or "none",
        "error": text(raw.get("error")),
        **{name: count(raw.get(name)) for name in _COUNTS},
        "submitted_at": submitted,
        **{name: number(raw.get(name)) for name in _TIMES},
        "finished_at": finished,
        **{name: number(raw.get(name)) for name in _SECONDS},
    }


def fresh_tasks(raw: Iterable[Any], after: int) -> list[Json]:
    """Those whose number is above `after`, in order of their numbers: a stream that is resumed tells of some again."""
    found = [task for value in raw if (task := task_of(mapping(value))) is not None and task["n"] > after]
    return sorted({task["n"]: task for task in found}.values(), key=lambda task: int(task["n"]))
