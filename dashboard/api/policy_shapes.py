"""Policies, reviews and changes as the JSON API tells and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from ninja import Field, Schema
from pydantic import StringConstraints

from dashboard.api.policy_shown import DRIFT, GUARD, DriftOut, GuardIn, GuardOut
from scheduler_api.api_paging import LARGEST
from scheduler_api.api_schema import example
from scheduler_api.policies import LONGEST_REASON

type Json = dict[str, Any]

LONGEST_TTL_S = 30 * 86_400
FIELD: Json = {
    "name": "prefill_order",
    "meaning": "Whose prompt enters the next batch first.",
    "takes_effect": "next iteration",
    "requested": "rotating",
    "effective": "physical",
    "why": "the KV cache is unified, so the server keeps physical order",
    "values": ["physical", "rotating", "fair", "shortest_first"],
    "default": "physical",
}
CHANGE: Json = {
    "id": 12,
    "at": "2026-05-01T09:00:00Z",
    "actor_name": "mira",
    "reason": "chat waits behind long-doc",
    "old": {"prefill_order": "physical", "phase": "continuous"},
    "changes": {"prefill_order": "rotating"},
    "new": {"prefill_order": "rotating", "phase": "continuous"},
    "version": 42,
    "effective_from_iteration": 4711,
    "ttl_s": 600.0,
    "outcome": "applied",
    "error": "",
}


class PolicyField(Schema):
    """`why`: why what is in force differs from what was asked for, "" where it does not. `values` of an enum; else a number from
    `minimum` to `maximum`, null for off where it is `nullable`."""

    name: str
    meaning: str = ""
    takes_effect: str = ""
    requested: Any = None
    effective: Any = None
    why: str = ""
    values: list[Any] | None = None
    type: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    nullable: bool | None = None
    default: Any = None

    model_config = example(**FIELD)


class PolicyOut(Schema):
    """`can` false: `why_not` says why, and the rest is what was seen last. `fields` without meaning: no observer reports."""

    server: int
    can: bool
    why_not: str
    version: int | None
    effective_from_iteration: int | None
    changed_at: float | None = Field(..., description="Unix seconds of the server's clock")
    reason: str
    reverts_at: float | None = Field(..., description="Unix seconds: then the server itself goes back to `reverts_to`")
    reverts_to: dict[str, Any] | None
    requested: dict[str, Any]
    effective: dict[str, Any]
    fields: list[PolicyField]
    drift: DriftOut | None
    guards: list[GuardOut]

    model_config = example(
        server=1,
        can=True,
        why_not="",
        version=42,
        effective_from_iteration=4711,
        changed_at=1764500050.0,
        reason="chat waits behind long-doc",
        reverts_at=1764500650.0,
        reverts_to={"prefill_order": "physical"},
        requested={"prefill_order": "rotating"},
        effective={"prefill_order": "physical"},
        fields=[FIELD],
        drift=DRIFT,
        guards=[GUARD],
    )


class ReviewIn(Schema):
    set: dict[str, Any] = Field(..., description="policy fields and their new values")
    expected_version: int | None = Field(None, description="the version that was seen; without it the one that is found")
    ttl_s: float | None = Field(None, gt=0, le=LONGEST_TTL_S, description="then the server itself goes back; null: until changed")

    model_config = example(set={"prefill_order": "rotating"}, expected_version=41, ttl_s=600)


class PolicyIn(ReviewIn):
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_REASON)]
    guards: list[GuardIn] = Field([], max_length=3, description="conditions that put the change back")
    without_ttl: bool = Field(False, description="with guards: no deadline, where an hour is chosen otherwise")
    understood: bool = Field(False, description="confirms the severe cautions that a review tells")

    model_config = example(
        set={"prefill_order": "rotating"},
        expected_version=41,
        ttl_s=600,
        reason="chat waits behind long-doc",
        guards=[{"metric": "oldest_wait", "over": 60, "for_s": 10}],
    )


class CautionOut(Schema):
    """`severe`: it can stop requests from being served; a switch has to confirm it with `understood`."""

    text: str
    severe: bool

    model_config = example(text="Short prompts pass long ones over.", severe=False)


class ReviewOut(Schema):
    """What the policy would be, by the server's own dry run. Nothing is changed."""

    requested: dict[str, Any]
    effective: dict[str, Any]
    reasons: dict[str, str]
    cautions: list[CautionOut]

    model_config = example(
        requested={"prefill_order": "rotating"},
        effective={"prefill_order": "rotating"},
        reasons={},
        cautions=[{"text": "Run 7 measures this server now. Applying disturbs it.", "severe": False}],
    )


class RevertIn(Schema):
    """Without `change` it is the one in force."""

    change: int | None = Field(None, le=LARGEST)

    model_config = example(change=12)


class PolicyChangeOut(Schema):
    """One attempt to switch: `old` is what was asked for before, `changes` what was asked for, `new` what is then in force."""

    id: int
    at: datetime
    actor_name: str
    reason: str
    old: dict[str, Any]
    changes: dict[str, Any]
    new: dict[str, Any]
    version: int | None
    effective_from_iteration: int | None
    ttl_s: float | None
    outcome: str = Field(..., description="applied, refused, failed or seen")
    error: str

    model_config = example(**CHANGE)
