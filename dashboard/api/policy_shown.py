"""Drift and guard rails as the JSON API tells and takes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ninja import Field, Schema

from scheduler_api.api_problems import invalid
from scheduler_api.api_schema import example
from scheduler_api.policies import guarding, guards
from scheduler_api.policies.models import PolicyDrift, PolicyGuard

type Json = dict[str, Any]

DRIFT: Json = {
    "id": 3,
    "found_at": "2026-05-01T08:00:00Z",
    "cause": "restart",
    "expected": {"phase": "barrier"},
    "found": {"phase": "continuous"},
    "version": 1,
    "reason": "it was started again, and has the policy that it starts with",
    "state": "open",
    "settled_at": None,
    "settled_by": "",
}
CONDITION: Json = {"metric": "oldest_wait", "over": 60.0, "for_s": 10.0, "samples": 1}
SHOWN: Json = {**CONDITION, "words": "oldest wait over 60 s for 10 s", "reads": "4.2 s", "near": False}
GUARD: Json = {
    "id": 8,
    "change": 12,
    "version": 42,
    "state": "watching",
    "armed_at": "2026-05-01T09:00:00Z",
    "until": "2026-05-01T09:10:00Z",
    "ended_at": None,
    "text": "",
    "conditions": [SHOWN],
}


class DriftOut(Schema):
    """The policy is not what it was known to be. `expected` and `found` are whole requested policies."""

    id: int
    found_at: datetime
    cause: str = Field(..., description="restart or elsewhere")
    expected: dict[str, Any]
    found: dict[str, Any]
    version: int
    reason: str
    state: str = Field(..., description="open, reapplied, left or superseded")
    settled_at: datetime | None
    settled_by: str

    model_config = example(**DRIFT)


class GuardIn(Schema):
    """`over`: a share for error_rate, else seconds. `samples`: how many requests the figure needs."""

    metric: guards.Metric
    over: float
    for_s: float
    samples: int = 1

    model_config = example(**CONDITION)


class ConditionOut(GuardIn):
    """`reads`: what the metric is now, in words; `near`: over four fifths of the threshold."""

    words: str
    reads: str
    near: bool

    model_config = example(**SHOWN)


class GuardOut(Schema):
    """It goes with a change. `until`: when the server itself goes back."""

    id: int
    change: int
    version: int
    state: str = Field(..., description="watching, reverted, failed or ended")
    armed_at: datetime
    until: datetime | None
    ended_at: datetime | None
    text: str
    conditions: list[ConditionOut]

    model_config = example(**GUARD)


def conditions(given: Iterable[GuardIn]) -> list[guards.Condition]:
    """Raises a problem for a threshold, time or number that cannot be."""
    try:
        return [guards.from_json({**each.dict(), "metric": each.metric.value}) for each in given]
    except ValueError as error:
        raise invalid(str(error), "guards") from None


def drift_out(drift: PolicyDrift) -> Json:
    return {name: getattr(drift, name) for name in DRIFT}


def guard_out(guard: PolicyGuard, state: Json | None, now: float) -> Json:
    same = {name: getattr(guard, name) for name in ("id", "version", "state", "armed_at", "until", "ended_at", "text")}
    read = zip(guarding.conditions_of(guard), guarding.shown(guard, state, now), strict=True)
    told = [guards.as_json(each) | {"words": shown.words, "reads": shown.value, "near": shown.near} for each, shown in read]
    return same | {"change": guard.change_id, "conditions": told}
