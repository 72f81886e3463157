"""What each kind of rule finds in a server's live state (docs/protocol.md section 2). Pure.

`find` answers None where the state does not tell: nothing opens then, and nothing closes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.progress import COMPUTED, Progress, Seen
from scheduler_api.health import duration

type State = Mapping[str, Any]

#: The observer writes a state at least every 20 s, also when nothing in it changes.
STALE_S = 30.0
#: A found value counts as gone below this part of its limit, so that one that lies about the limit opens once.
GONE_BELOW = 0.8

_UNSEEN = frozenset({"unknown", "unauthorised"})
#: A process that is not there, or that only begins, has no work in slots.
_EMPTY = frozenset({"down", "loading", "sleeping"})


@dataclass(frozen=True, slots=True)
class Finding:
    """`key` tells it from others of its rule and server; `value_s` is compared with `limit_s`."""

    key: str
    value_s: float
    limit_s: float
    text: str
    slot: int | None = None
    client: str = ""
    task: int | None = None

    @property
    def over(self) -> bool:
        return self.value_s > self.limit_s

    @property
    def gone(self) -> bool:
        return self.value_s < self.limit_s * GONE_BELOW


type Found = list[Finding] | None


def fresh(state: State | None, now: float) -> bool:
    return state is not None and now - state["t"] <= STALE_S


def observe(state: State | None, progress: Progress, now: float) -> None:
    """Takes a state's slots into the memory, once for all rules."""
    if state is None or not fresh(state, now):
        return
    health = state["health"]["state"]
    if health in _EMPTY:
        progress.forget()
    elif health in ("up", "not_serving"):
        progress.update(state.get("slots") or [], now)


def find(kind: Kind, state: State | None, progress: Progress, now: float, threshold_s: float) -> Found:
    """All findings that are not gone. `progress` was shown the state by `observe`."""
    if state is None or not fresh(state, now):
        return None
    health = state["health"]["state"]
    if kind is Kind.DOWN:
        return _down(state, now, threshold_s)
    if health in _UNSEEN or health == "silent":
        return None
    if health in _EMPTY:
        return []
    return (
        [each for each in _of_work(kind, state, progress, now, threshold_s) or [] if not each.gone]
        if _tells(kind, state)
        else None
    )


def _tells(kind: Kind, state: State) -> bool:
    """Whether a server that is seen tells what this kind looks at."""
    if kind is Kind.QUEUE_AGE:
        queue = state.get("queue") or {}
        return queue.get("depth") == 0 or queue.get("oldest_s") is not None
    if kind in (Kind.STUCK_SLOT, Kind.STARVING):
        return "slots" not in (state.get("missing") or {})
    return True


def _of_work(kind: Kind, state: State, progress: Progress, now: float, threshold_s: float) -> Found:
    return _LOOKS[kind](state, progress, now, threshold_s) if kind in _LOOKS else None


def _down(state: State, now: float, silence_s: float) -> Found:
    health = state["health"]
    match health["state"]:
        case "unknown":
            return None
        case "down":
            return [Finding("", max(0.001, now - health["since"]), 0.0, _sentence(health))]
        case "silent":
            silent = now - (health["seen_at"] or health["since"])
            return [Finding("", silent, silence_s, f"No answer for {duration(silent)}.")] if silent > silence_s else []
    return []


def _sentence(health: State) -> str:
    detail = f" {health['detail']}" if health.get("detail") else ""
    return f"{health['text']}.{detail}"


def _not_serving(state: State, _: Progress, now: float, __: float) -> Found:
    health = state["health"]
    if health["state"] != "not_serving":
        return []
    return [Finding("", max(0.001, now - health["since"]), 0.0, _sentence(health))]


def _stuck(state: State, progress: Progress, now: float, limit_s: float) -> Found:
    return [
        Finding(
            f"slot {pk}",
            now - seen.since,
            limit_s,
            f"Slot {pk}{_whose(seen)} is {_doing(seen)} and has not moved for {duration(now - seen.since)}.",
            pk,
            seen.client,
            seen.task,
        )
        for pk, seen in progress.slots.items()
        if seen.state in COMPUTED and seen.known
    ]


def _doing(seen: Seen) -> str:
    return "generating" if seen.state == "generating" else "at its prompt"


def _whose(seen: Seen) -> str:
    return f" ({seen.client})" if seen.client else ""


def _starving(state: State, progress: Progress, now: float, limit_s: float) -> Found:
    found = []
    slots = {slot["id"]: slot for slot in state.get("slots") or []}
    for owner, (since, pk) in progress.waiting().items():
        others = progress.others_served_at(owner)
        if others is None or others - since < limit_s * GONE_BELOW:
            continue
        seen, waits = progress.slots[pk], others - since
        why = slots[pk].get("waiting_for") or ""
        name = seen.client or f"Slot {pk}"
        where = f" in slot {pk}" if seen.client else ""
        text = f"{name}{where} got no token for {duration(now - since)} while others did{': ' if why else ''}{why}."
        found.append(Finding(owner, waits, limit_s, text, pk, seen.client, seen.task))
    return found


def _queue_age(state: State, _: Progress, __: float, limit_s: float) -> Found:
    queue = state.get("queue") or {}
    depth, oldest = queue.get("depth") or 0, queue.get("oldest_s") or 0.0
    if not depth:
        return []
    who = "One task queues" if depth == 1 else f"{depth} tasks queue"
    return [Finding("", oldest, limit_s, f"{who}, the oldest for {duration(oldest)}.")]


def _cohort_hold(state: State, progress: Progress, now: float, limit_s: float) -> Found:
    held = [(now - seen.held_since, pk, seen) for pk, seen in progress.slots.items() if seen.held_since is not None]
    if not held:
        return []
    cap = ((state.get("policy") or {}).get("effective") or {}).get("barrier_max_hold_ms")
    limit = cap / 1000 if cap is not None else limit_s
    value, pk, seen = max(held, key=lambda each: each[:2])
    waits = next((slot.get("waiting_for") or "" for slot in state.get("slots") or [] if slot["id"] == pk), "")
    behind = f": {waits.removeprefix('held: ')}" if waits else ""
    capped = f"over its cap of {duration(limit)}" if cap is not None else "without a cap in the policy"
    text = f"Slot {pk}{_whose(seen)} is held for {duration(value)}, {capped}{behind}."
    return [Finding("", value, limit, text, pk, seen.client, seen.task)]


_LOOKS: dict[Kind, Callable[[State, Progress, float, float], Found]] = {
    Kind.NOT_SERVING: _not_serving,
    Kind.STUCK_SLOT: _stuck,
    Kind.STARVING: _starving,
    Kind.QUEUE_AGE: _queue_age,
    Kind.COHORT_HOLD: _cohort_hold,
}


def observer_lost(silent_s: float | None, threshold_s: float) -> Found:
    """`silent_s`: since the last report of any observer; None when that cannot be known, as with a Valkey that is away."""
    if silent_s is None:
        return None
    finding = Finding(
        "",
        silent_s,
        threshold_s,
        f"No observer has reported for {duration(silent_s)}: no server is watched. Start one: manage.py observe",
    )
    return [] if finding.gone else [finding]
