"""Deltas between two states of a server, as docs/protocol.md section 2 has them. Pure.

`apply(old, diff(old, new)) == new` holds for any two states with the same top-level keys.
"""

from __future__ import annotations

from typing import Any

KEPT_ITERATIONS = 120

type State = dict[str, Any]
type Delta = dict[str, Any]

_APART = frozenset({"seq", "t", "slots", "iterations"})


def diff(old: State, new: State) -> Delta:
    """What turns `old` into `new`.

    A list that cannot be told as changes (slots added, iterations begun anew) goes whole into `set`.
    """
    changed = {key: value for key, value in new.items() if key not in _APART and (key not in old or old[key] != value)}
    slots = _changed_slots(old.get("slots"), new.get("slots"))
    if slots is None:
        changed["slots"] = new.get("slots")
    iterations = _new_iterations(old.get("iterations"), new.get("iterations"))
    if iterations is None:
        changed["iterations"] = new.get("iterations")
    return {"seq": new["seq"], "t": new["t"], "set": changed, "slots": slots or [], "iterations": iterations or []}


def apply(state: State, delta: Delta) -> State:
    """A new state; neither argument is changed."""
    result = {**state, **delta["set"], "seq": delta["seq"], "t": delta["t"]}
    if delta["slots"]:
        by_id = {slot["id"]: slot for slot in delta["slots"]}
        result["slots"] = [by_id.get(slot["id"], slot) for slot in result["slots"]]
    if delta["iterations"]:
        result["iterations"] = [*result["iterations"], *delta["iterations"]][-KEPT_ITERATIONS:]
    return result


def is_empty(delta: Delta) -> bool:
    """Nothing but the sequence number and the time moved."""
    return not (delta["set"] or delta["slots"] or delta["iterations"])


def _changed_slots(old: list[State] | None, new: list[State] | None) -> list[State] | None:
    """The slots that differ; None when the list itself does."""
    if old is None or new is None:
        return [] if old is new else None
    ids = [slot["id"] for slot in new]
    if ids != [slot["id"] for slot in old] or len(set(ids)) != len(ids):
        return [] if old == new else None
    return [after for before, after in zip(old, new, strict=True) if before != after]


def _new_iterations(old: list[State] | None, new: list[State] | None) -> list[State] | None:
    """What was appended; None when `new` does not carry `old` on."""
    if old is None or new is None:
        return [] if old is new else None
    if old == new:
        return []
    for kept in range(min(len(old), len(new) - 1), -1, -1):
        if kept and old[-kept] != new[0]:
            continue
        added = new[kept:]
        if [*old, *added][-KEPT_ITERATIONS:] == new:
            return added
    return None
