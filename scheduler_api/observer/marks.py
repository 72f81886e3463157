"""Marks on a server's time line: what happened to it, in words. Pure."""

from __future__ import annotations

from typing import Any

from scheduler_api.kinds.fields import Json, count, mapping, number, text

KEPT_MARKS = 20


def restart_mark(t: float, who: str = "") -> Json:
    """`who`: the part of the server that restarted; "" for the whole."""
    return {"t": t, "iteration": None, "kind": "restart", "text": f"{who} restarted".strip(), "by": "", "version": None}


def policy_mark(before: Any, after: Any, t: float) -> Json | None:
    """A mark when the policy's version moved. `by` is the reason that came with the change, until the audit names who it was."""
    old, new = mapping(before), mapping(after)
    version = count(new.get("version"))
    if not old or version is None or version == count(old.get("version")):
        return None
    return {
        "t": number(new.get("changed_at")) or t,
        "iteration": count(new.get("effective_from_iteration")),
        "kind": "policy",
        "text": _changes(mapping(old.get("requested")), mapping(new.get("requested"))),
        "by": text(new.get("reason")),
        "version": version,
    }


def _changes(old: Json, new: Json) -> str:
    """ "prefill order: physical to rotating", for each field that differs."""
    changed = [name for name in new if old.get(name) != new[name]]
    if not changed:
        return "same policy set again"
    return ", ".join(f"{name.replace('_', ' ')}: {_word(old.get(name))} to {_word(new[name])}" for name in changed)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)[:40]
