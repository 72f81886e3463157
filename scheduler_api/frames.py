"""Deltas between two states of a server, as docs/protocol.md section 2 has them. Pure.

`apply(old, diff(old, new)) == new` holds for any two states with the same top-level keys.
"""

from __future__ import annotations

from typing import Any

KEPT_ITERATIONS = 120
KEPT_TASKS = 120

type State = dict[str, Any]
type Delta = dict[str, Any]

_APART = frozenset({"seq", "t", "slots", "iterations", "tasks", "figures"})
_SERIES = "_series"


def diff(old: State, new: State) -> Delta:
    """What turns `old` into `new`.

    What cannot be told as changes (slots added, iterations begun anew) goes whole into `set`.
    """
    changed = {key: value for key, value in new.items() if key not in _APART and (key not in old or old[key] != value)}
    told: dict[str, Any] = {
        "slots": _changed_slots(old.get("slots"), new.get("slots")),
        "iterations": _appended(old.get("iterations"), new.get("iterations"), KEPT_ITERATIONS),
        "tasks": _appended(old.get("tasks"), new.get("tasks"), KEPT_TASKS),
        "figures": _changed_values(old.get("figures"), new.get("figures")),
        "series": _changed_series(old.get("figures"), new.get("figures")),
    }
    for name in ("slots", "iterations", "tasks", "figures"):
        if told[name] is None:
            changed[name] = new.get(name)
            told[name] = {} if name == "figures" else []
    return {"seq": new["seq"], "t": new["t"], "set": changed, **told}


def apply(state: State, delta: Delta) -> State:
    """A new state; neither argument is changed."""
    result = {**state, **delta["set"], "seq": delta["seq"], "t": delta["t"]}
    if delta["slots"]:
        by_id = {slot["id"]: slot for slot in delta["slots"]}
        result["slots"] = [by_id.get(slot["id"], slot) for slot in result["slots"]]
    for name, kept in (("iterations", KEPT_ITERATIONS), ("tasks", KEPT_TASKS)):
        if delta[name]:
            result[name] = [*result[name], *delta[name]][-kept:]
    if delta["figures"] or delta["series"]:
        figures = {**result["figures"], **delta["figures"]}
        for name, (drop, keep, points) in delta["series"].items():
            figures[name] = [*figures[name][drop : drop + keep], *points]
        result["figures"] = figures
    return result


def is_empty(delta: Delta) -> bool:
    """Nothing but the sequence number and the time moved."""
    return not any(delta[name] for name in ("set", "slots", "iterations", "tasks", "figures", "series"))


def _changed_slots(old: list[State] | None, new: list[State] | None) -> list[State] | None:
    """The slots that differ; None when the list itself does."""
    if old is None or new is None:
        return [] if old is new else None
    ids = [slot["id"] for slot in new]
    if ids != [slot["id"] for slot in old] or len(set(ids)) != len(ids):
        return [] if old == new else None
    return [after for before, after in zip(old, new, strict=True) if before != after]


def _appended(old: list[State] | None, new: list[State] | None, most: int) -> list[State] | None:
    """What was appended; None when `new` does not carry `old` on."""
    if old is None or new is None:
        return [] if old is new else None
    if old == new:
        return []
    for kept in range(min(len(old), len(new) - 1), -1, -1):
        if kept and old[-kept] != new[0]:
            continue
        added = new[kept:]
        if [*old, *added][-most:] == new:
            return added
    return None


def _changed_values(old: State | None, new: State | None) -> State | None:
    """The figures that differ, without series that are told as changes; None when there are others than before."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {} if old == new else None
    if old.keys() != new.keys():
        return None
    return {name: value for name, value in new.items() if old[name] != value and not _are_series(name, old, new)}


def _changed_series(old: State | None, new: State | None) -> State:
    """For each series that differs: how many points go at the front, how many of the next stay, and what comes behind them."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.keys() != new.keys():
        return {}
    return {name: _spliced(old[name], new[name]) for name in new if _are_series(name, old, new) and old[name] != new[name]}


def _are_series(name: str, old: State, new: State) -> bool:
    return name.endswith(_SERIES) and isinstance(old[name], list) and isinstance(new[name], list)


def _spliced(old: list[Any], new: list[Any]) -> list[Any]:
    first = next((at for at, point in enumerate(old) if new and point[0] == new[0][0]), len(old))
    same = 0
    for before, after in zip(old[first:], new, strict=False):
        if before != after:
            break
        same += 1
    return [first, same, new[same:]]
