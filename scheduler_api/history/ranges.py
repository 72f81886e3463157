"""Questions about a range within the last minutes, answered from the detail in Valkey."""

from __future__ import annotations

import time

from scheduler_api import live
from scheduler_api.history import detail as kept
from scheduler_api.history import fairness as figures
from scheduler_api.history.tally import Json

#: Iterations read at once to answer a question; a range with more is answered from merged ones.
MOST_READ = 100_000


def newest(server_id: int) -> float:
    """The end of what is kept, on the server's clock; now, when nothing is."""
    entries = kept.index(server_id)
    state = live.read_many([server_id]).get(server_id)
    ends = [entry.end for entry in entries[-1:]]
    if state is not None:
        ends += [iteration["t"] for iteration in (state.get("iterations") or [])[-1:]]
        if not ends or abs(state["t"] - max(ends)) < kept.KEPT_S:
            ends.append(state["t"])
    return max(ends, default=time.time())


def detail(server_id: int, t_from: float, t_to: float) -> Json:
    return kept.read(server_id, t_from, t_to).as_json()


def fairness(server_id: int, t_from: float, t_to: float) -> Json:
    found = kept.read(server_id, t_from, t_to, most_iterations=MOST_READ, most_tasks=MOST_READ)
    return of(found)


def of(found: kept.Detail) -> Json:
    ended = [task for task in found.tasks if task["finished_at"] is not None]
    running = [{**task, "id": task["slot"], "since": task["assigned_at"]} for task in found.tasks if task["finished_at"] is None]
    return figures.fairness(found.iterations, ended, running, found.t_from, found.t_to)
