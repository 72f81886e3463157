"""Live states as small as conditions need them."""

from __future__ import annotations

from typing import Any

type Json = dict[str, Any]

NOW = 1_764_500_000.0


def slot(pk: int, state: str = "generating", *, task: int | None = None, done: int = 0, made: int = 0, **more: Any) -> Json:
    """`done` prompt tokens computed, `made` tokens generated."""
    given = 100 + pk if task is None and state != "idle" else task
    counts = {"n_processed": done, "n_generated": made}
    return {"id": pk, "state": state, "task": given, "client": "", "waiting_for": "", **counts, **more}


def state(t: float = NOW, health: str = "up", slots: list[Json] | None = None, **more: Any) -> Json:
    told = {"state": health, "text": more.pop("text", health), "detail": "", "since": more.pop("since", t), "seen_at": t}
    return {
        "seq": 1,
        "t": t,
        "health": told | more.pop("told", {}),
        "slots": slots or [],
        "queue": {"depth": 0, "oldest_s": 0.0},
        "policy": {"effective": {}},
        "missing": {},
        **more,
    }
