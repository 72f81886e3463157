"""The JSON API of what stands beside a policy: drift to be settled, guard rails, and windows by the clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from datetime import time as clock_time
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema
from ninja.errors import HttpError
from ninja.pagination import paginate
from ninja.responses import Status

from dashboard.api.policy_shapes import PolicyChangeOut
from dashboard.api.policy_shown import DriftOut, GuardOut, drift_out, guard_out
from scheduler_api import selectors
from scheduler_api.access import Role
from scheduler_api.api_auth import require, server_of
from scheduler_api.api_paging import Pages, Shown
from scheduler_api.api_problems import Refused, invalid
from scheduler_api.api_schema import example
from scheduler_api.models import PolicyChange, Server
from scheduler_api.policies import drifting, guarding, presets, scheduling
from scheduler_api.policies.models import PolicyDrift, PolicyGuard, PolicyWindow
from scheduler_api.policies.values import fit

type Json = dict[str, Any]

router = Router(tags=["policies"])

EDGE: Json = {"what": "begin", "due": "2026-05-01T22:00:00Z"}
ATTEMPT: Json = {"edge": "end", "due": "2026-05-01T06:00:00Z", "at": "2026-05-01T06:00:02Z", "outcome": "applied", "text": ""}
GIVEN: Json = {
    "name": "nights",
    "zone": "Europe/Berlin",
    "days": [0, 1, 2, 3, 4],
    "begins": "22:00",
    "ends": "06:00",
    "inside": "chat-beside-documents",
    "outside": None,
}
WINDOW: Json = {
    **GIVEN,
    "id": 2,
    "when": "Mon to Fri 22:00 to 06:00 the day after, Europe/Berlin",
    "enabled": True,
    "inside": {"prefill_order": "rotating"},
    "starts_at": None,
    "ends_at": None,
    "by": "mira",
    "next": EDGE,
    "last": [ATTEMPT],
}


class EdgeOut(Schema):
    """`what`: begin or end."""

    what: str
    due: datetime

    model_config = example(**EDGE)


class AttemptOut(Schema):
    """What became of one edge: trying, applied, already, refused or failed, and why."""

    edge: str
    due: datetime
    at: datetime
    outcome: str
    text: str

    model_config = example(**ATTEMPT)


class WindowIn(Schema):
    """Weekly with `days` (0 is Monday), `begins` and `ends`; or once with `starts_at` and `ends_at`, which are in `zone` unless
    they name an offset. A policy is an object of fields, or the key of a preset. `outside` null: back to what was before."""

    name: str = Field(..., min_length=1, max_length=80)
    zone: str = Field("", max_length=60, description="IANA name; without it the console's own")
    days: list[int] = Field([], max_length=7)
    begins: clock_time | None = None
    ends: clock_time | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    inside: dict[str, Any] | str
    outside: dict[str, Any] | str | None = None

    model_config = example(**GIVEN)


class WindowChange(Schema):
    enabled: bool

    model_config = example(enabled=False)


class WindowOut(Schema):
    """`next`: the first edge to come, null while it is off. `last`: the last attempts."""

    id: int
    name: str
    when: str
    enabled: bool
    zone: str
    days: list[int]
    begins: clock_time | None
    ends: clock_time | None
    starts_at: datetime | None
    ends_at: datetime | None
    inside: dict[str, Any]
    outside: dict[str, Any] | None
    by: str
    next: EdgeOut | None
    last: list[AttemptOut]

    model_config = example(**WINDOW)


# -- drift ----------------------------------------------------------------------------------------------------------------


@router.get("/{int:server_id}/policy/drifts", response=list[DriftOut], summary="Drift, the newest first")
@paginate(Pages)
def list_drifts(request: HttpRequest, server_id: int, state: str = "") -> Any:
    rows = PolicyDrift.objects.filter(server=server_of(request, server_id))
    return rows.filter(state=state) if state else rows


@router.post(
    "/{int:server_id}/policy/drifts/{int:drift_id}/reapply", response=PolicyChangeOut, summary="Apply again what was there"
)
def reapply_drift(request: HttpRequest, server_id: int, drift_id: int) -> PolicyChange:
    """At the version that was found: where the policy was changed since, nothing happens (409)."""
    found, user = _drift(request, server_id, drift_id)
    return drifting.reapply(found, user)


@router.post("/{int:server_id}/policy/drifts/{int:drift_id}/leave", response=DriftOut, summary="Leave the policy as it was found")
def leave_drift(request: HttpRequest, server_id: int, drift_id: int) -> Json:
    found, user = _drift(request, server_id, drift_id)
    drifting.leave(found, user)
    found.refresh_from_db()
    return drift_out(found)


def _drift(request: HttpRequest, server_id: int, drift_id: int) -> tuple[PolicyDrift, Any]:
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    found = PolicyDrift.objects.select_related("server").filter(pk=drift_id, server=server).first()
    if found is None:
        raise HttpError(404, "No such drift.")
    if found.state != PolicyDrift.State.OPEN:
        raise Refused(409, "conflict", f"This was settled already: {found.get_state_display().lower()}, by {found.settled_by}.")
    return found, user


# -- guard rails ----------------------------------------------------------------------------------------------------------


@router.get("/{int:server_id}/policy/guards", response=list[GuardOut], summary="Guard rails, the newest first")
@paginate(Pages)
def list_guards(request: HttpRequest, server_id: int, state: str = "") -> Shown[PolicyGuard]:
    """With what each condition reads now. A guard rail is set with the switch that it goes with."""
    server = server_of(request, server_id)
    rows, now = PolicyGuard.objects.filter(server=server), time.time()
    live = selectors.live_state(server.pk)
    return Shown(rows.filter(state=state) if state else rows, lambda page: [guard_out(each, live, now) for each in page])


@router.delete("/{int:server_id}/policy/guards/{int:guard_id}", response={204: None}, summary="Take a guard rail off")
def remove_guard(request: HttpRequest, server_id: int, guard_id: int) -> Status[None]:
    """The policy stays."""
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    found = PolicyGuard.objects.select_related("server").filter(pk=guard_id, server=server).first()
    if found is None:
        raise HttpError(404, "No such guard rail.")
    if found.state != PolicyGuard.State.WATCHING:
        raise Refused(409, "conflict", f"This guard rail watches no more: {found.text or found.state}.")
    guarding.call_off(found, user)
    return Status(204, None)


# -- windows --------------------------------------------------------------------------------------------------------------


@router.get("/{int:server_id}/policy/windows", response=list[WindowOut], summary="Policies by the clock")
@paginate(Pages)
def list_windows(request: HttpRequest, server_id: int) -> list[Json]:
    return [_window_out(each) for each in scheduling.windows_of(server_of(request, server_id))]


@router.post("/{int:server_id}/policy/windows", response={201: WindowOut}, summary="Keep a new window")
def add_window(request: HttpRequest, server_id: int, body: WindowIn) -> Status[Json]:
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    row = scheduling.keep(_filled(server, body), user)
    return Status(201, _one(row))


@router.patch("/{int:server_id}/policy/windows/{int:window_id}", response=WindowOut, summary="Switch a window on or off")
def change_window(request: HttpRequest, server_id: int, window_id: int, body: WindowChange) -> Json:
    """A policy that it has set goes back at its deadline all the same."""
    row, user = _window(request, server_id, window_id)
    if row.enabled != body.enabled:
        scheduling.set_enabled(row, body.enabled, user)
    return _one(row)


@router.delete("/{int:server_id}/policy/windows/{int:window_id}", response={204: None}, summary="Remove a window")
def remove_window(request: HttpRequest, server_id: int, window_id: int) -> Status[None]:
    """A policy that it has set goes back at its deadline."""
    row, user = _window(request, server_id, window_id)
    scheduling.remove(row, user)
    return Status(204, None)


def _window(request: HttpRequest, server_id: int, window_id: int) -> tuple[PolicyWindow, Any]:
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    row = PolicyWindow.objects.select_related("server").filter(pk=window_id, server=server).first()
    if row is None:
        raise HttpError(404, "No such window.")
    return row, user


def _one(row: PolicyWindow) -> Json:
    return next(_window_out(each) for each in scheduling.windows_of(row.server) if each["row"].pk == row.pk)


def _window_out(shown: Mapping[str, Any]) -> Json:
    row, following = shown["row"], shown["next"]
    same = ("id", "name", "enabled", "zone", "days", "begins", "ends", "starts_at", "ends_at", "inside", "outside")
    return {name: getattr(row, name) for name in same} | {
        "when": shown["when"],
        "by": row.by_name,
        "next": {"what": following.what, "due": following.due} if following is not None else None,
        "last": [{name: getattr(each, name) for name in ATTEMPT} for each in shown["last"]],
    }


def _filled(server: Server, body: WindowIn) -> PolicyWindow:
    zone = body.zone or settings.TIME_ZONE
    if zone not in available_timezones():
        raise invalid(f"There is no time zone {zone}.", "zone")
    if wrong := [day for day in body.days if not 0 <= day <= 6]:
        raise invalid(f"A day is a number from 0 (Monday) to 6, not {wrong[0]}.", "days")
    fields = ((selectors.live_state(server.pk) or {}).get("switching") or {}).get("fields") or {}
    if not fields:
        raise Refused(409, "conflict", f"It is not known which policy fields {server.name} has: no observer reports any.")
    outside = None if body.outside is None else _values("outside", body.outside, fields)
    starts_at, ends_at = (_in_zone(moment, zone) for moment in (body.starts_at, body.ends_at))
    weekly = starts_at is None and ends_at is None
    return PolicyWindow(
        server=server,
        name=body.name.strip(),
        zone=zone,
        days=sorted(set(body.days)) if weekly else [],
        begins=body.begins if weekly else None,
        ends=body.ends if weekly else None,
        starts_at=starts_at,
        ends_at=ends_at,
        inside=_values("inside", body.inside, fields),
        outside=outside,
    )


def _values(name: str, given: Json | str, fields: Mapping[str, Json]) -> Json:
    """Of a preset what the server has; of an object all of it has to be known there."""
    preset = presets.find(given) if isinstance(given, str) else None
    if isinstance(given, str) and preset is None:
        raise invalid(f"There is no preset {given}.", name)
    fitted = fit(preset.values if preset is not None else given, fields)  # type: ignore[arg-type]
    unknown = [f"There is no policy field {each} there." for each in fitted.unknown] if preset is None else []
    if told := [*unknown, *fitted.problems]:
        raise invalid(" ".join(told), name)
    return fitted.values


def _in_zone(moment: datetime | None, zone: str) -> datetime | None:
    if moment is None or timezone.is_aware(moment):
        return moment
    return moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
