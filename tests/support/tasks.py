"""Tasks and slots as an engine tells of them, for tests that make their own."""

from __future__ import annotations

from typing import Any

type Json = dict[str, Any]


def ended(n: int, **more: Any) -> Json:
    """An ended task; stages that are not given follow the one before."""
    task: Json = {"n": n, "i": n, "task": 100 + n, "slot": 0, "client": "", "group": "completion", "reason": "limit", "error": ""}
    task |= {"n_prompt": 100, "n_cached": 0, "n_generated": 1, "submitted_at": 0.0, **more}
    for before, name in (
        ("submitted_at", "assigned_at"),
        ("assigned_at", "first_visit_at"),
        ("first_visit_at", "prompt_done_at"),
        ("prompt_done_at", "first_token_at"),
        ("first_token_at", "finished_at"),
    ):
        task.setdefault(name, task[before])
    return {**task, "skipped_s": 0.0, "paused_s": 0.0, "worst_gap_s": None, **more}
