"""Questions about a range within the last minutes, answered from the detail in Valkey."""

from __future__ import annotations

import time

from scheduler_api import live
from scheduler_api.history import detail as kept
from scheduler_api.history import fairness as figures
from scheduler_api.history import scene as scenes
from scheduler_api.history import stalls, whatif
from scheduler_api.history.tally import Json, Roster

#: How far before a stall the tasks in it may have begun, and how far beyond the range asked for it may last.
BEFORE_S = 120.0
BEYOND_S = 120.0
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
    """Counted chunk by chunk: a long range of a fast server is never in memory as a whole."""
    count = figures.Count(t_from, t_to)
    slots: list[Json] = []
    for chunk in kept.between(server_id, kept.index(server_id), t_from, t_to):
        slots = as_slots(chunk.open)
        count.piece(chunk.iterations, chunk.tasks, slots)
    state = live.read_many([server_id]).get(server_id)
    if state is not None and abs(state["t"] - time.time()) < kept.KEPT_S:
        newer = [slot for slot in state.get("slots") or [] if slot["state"] != "idle"]
        count.piece(state.get("iterations") or [], state.get("tasks") or [], newer)
        slots = newer if newest(server_id) <= t_to else slots
    return count.object(slots)


def as_slots(tasks: list[Json]) -> list[Json]:
    """Tasks that run, in the shape of slots."""
    return [{**task, "id": task["slot"], "since": task["assigned_at"]} for task in tasks]


def parts(found: kept.Detail) -> tuple[list[Json], list[Json]]:
    """Ended tasks, and those that still run in the shape of slots."""
    ended = [task for task in found.tasks if task["finished_at"] is not None]
    return ended, as_slots([task for task in found.tasks if task["finished_at"] is None])


def stall(server_id: int, slot: int, t_from: float, t_to: float) -> Json | None:
    """Who blocked a slot: the stretch without a token that covers most of t_from..t_to, whole; None when there is none."""
    wide = (t_from - BEFORE_S, t_to + BEYOND_S)
    found = kept.read(server_id, *wide, most_iterations=MOST_READ, most_tasks=MOST_READ)
    if any("merged" in each for each in found.iterations):
        found = kept.read(server_id, t_from - 1.0, t_to + 1.0, most_iterations=MOST_READ, most_tasks=MOST_READ)
    known = max([min(found.t_to, newest(server_id)), *(task["finished_at"] or 0.0 for task in found.tasks)])
    stretch = stalls.longest(stalls.stretches(found.iterations, found.tasks, slot, known), t_from, t_to)
    return None if stretch is None else stall_of(found, stretch)


def stall_of(found: kept.Detail, stretch: stalls.Stretch) -> Json:
    ended, running = parts(found)
    roster = Roster(ended, running)
    start, end, slot = stretch.start, stretch.end, stretch.slot
    reason, sentence = stalls.reason(found.iterations, slot, start, end)
    policy = kept.policy_at(found, start)
    scene = scenes.scene(found.iterations, found.tasks, stretch, policy, found.info)
    return {
        "slot": slot,
        "task": stretch.task["task"],
        "client": stretch.task["client"],
        "from": start,
        "to": end,
        "open": stretch.open,
        "reason": reason,
        "sentence": sentence,
        "blockers": stalls.blockers(found.iterations, roster, slot, start, end),
        "iterations": stalls.numbers(found.iterations, slot, start, end),
        "policy": policy,
        "elsewhere": [] if isinstance(scene, str) else whatif.elsewhere(scene),
        "elsewhere_why_not": scene if isinstance(scene, str) else "",
    }
