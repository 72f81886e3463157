"""The JSON API of a server's policy: read, reviewed, switched, taken back."""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError
from ninja.pagination import paginate

from dashboard.api.policy_shapes import PolicyChangeOut, PolicyIn, PolicyOut, RevertIn, ReviewIn, ReviewOut
from dashboard.api.policy_shown import conditions, drift_out, guard_out
from scheduler_api import policies, selectors
from scheduler_api.access import Role
from scheduler_api.api_auth import require, server_of
from scheduler_api.api_paging import Pages
from scheduler_api.api_problems import Refused
from scheduler_api.exceptions import SwitchRefused
from scheduler_api.kinds import why_not_switched
from scheduler_api.models import PolicyChange, PolicyOutcome, Server
from scheduler_api.policies import drifting
from scheduler_api.policies.cautions import Caution, cautions
from scheduler_api.policies.models import PolicyGuard
from workers import selectors as runs

type Json = dict[str, Any]

router = Router(tags=["policies"])


@router.get("/{int:server_id}/policy", response=PolicyOut, summary="The policy, field by field")
def policy(request: HttpRequest, server_id: int) -> Json:
    """Read from the server now: what each field means and may be, and why what is in force differs from what was asked for."""
    server = server_of(request, server_id)
    state = selectors.live_state(server.pk) or {}
    switching = state.get("switching") or {}
    why_not = why_not_switched(server.kind)
    found = (state.get("policy") if why_not else policies.read_policy(server)) or {}
    drift, now = drifting.open_drift(server.pk), time.time()
    watching = PolicyGuard.objects.filter(server=server, state=PolicyGuard.State.WATCHING)
    told = {name: found.get(name) for name in ("version", "effective_from_iteration", "changed_at", "reverts_at", "reverts_to")}
    return told | {
        "server": server.pk,
        "can": not why_not,
        "why_not": why_not,
        "reason": found.get("reason") or "",
        "requested": found.get("requested") or {},
        "effective": found.get("effective") or {},
        "fields": _fields(found, switching.get("fields") or {}),
        "drift": drift_out(drift) if drift is not None else None,
        "guards": [guard_out(each, state or None, now) for each in watching],
    }


def _fields(found: Json, specs: dict[str, Json]) -> list[Json]:
    requested, effective, reasons = (found.get(name) or {} for name in ("requested", "effective", "reasons"))
    names = [*specs, *(name for name in requested if name not in specs)]
    return [_field(name, specs.get(name) or {}, requested.get(name), effective.get(name), reasons) for name in names]


def _field(name: str, spec: Json, asked: Any, in_force: Any, reasons: Json) -> Json:
    why = str(reasons.get(name) or "the server does not say why") if asked != in_force else ""
    same = ("meaning", "takes_effect", "values", "type", "minimum", "maximum", "nullable", "default")
    told = {each: spec[each] for each in same if each in spec}
    return told | {"name": name, "requested": asked, "effective": in_force, "why": why}


@router.patch("/{int:server_id}/policy", response=PolicyChangeOut, summary="Switch the policy")
def switch_policy(request: HttpRequest, server_id: int, body: PolicyIn) -> PolicyChange:
    """Answers with the audit row, after the policy was read back. 409 carries the policy in force, 422 names the field, 502 says
    that nothing usable answered. A change that can stop requests from being served is refused with 409 until `understood`."""
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    guarded: Json = {"guards": conditions(body.guards), "without_ttl": body.without_ttl} if body.guards else {}
    severe = [each.text for each in _cautions(server, body) if each.severe]
    if severe and not body.understood:
        text = "This can stop requests from being served: confirm it with understood, or set a cap."
        raise Refused(409, "confirm", text, field="understood", cautions=severe)
    return policies.switch(
        server,
        body.set,
        actor=user,
        actor_name=user.get_username(),
        reason=body.reason,
        expected_version=body.expected_version,
        ttl_s=body.ttl_s,
        **guarded,
    )


def _cautions(server: Server, body: ReviewIn) -> list[Caution]:
    """From the live state, which is a moment old at most; without an observer nothing is known that could be told."""
    state = selectors.live_state(server.pk)
    found = (state or {}).get("policy")
    return cautions(body.set, found, state, body.ttl_s) if found and body.set else []


@router.post("/{int:server_id}/policy/review", response=ReviewOut, summary="What a switch would do")
def review_policy(request: HttpRequest, server_id: int, body: ReviewIn) -> Json:
    """Asks the server for a dry run, and tells what to know first. Errors are those of the switch."""
    server = server_of(request, server_id)
    require(request, Role.OPERATOR, server)
    would_be = policies.dry_run(server, body.set, body.expected_version)
    told = [{"text": each.text, "severe": each.severe} for each in _cautions(server, body)]
    if (run := runs.active_run(server)) is not None and body.set:
        told.append({"text": f"Run {run.pk} measures this server now. Applying disturbs it.", "severe": False})
    same = {name: would_be.get(name) or {} for name in ("requested", "effective", "reasons")}
    return same | {"cautions": told}


@router.post("/{int:server_id}/policy/revert", response=PolicyChangeOut, summary="Take a change back")
def revert_policy(request: HttpRequest, server_id: int, body: RevertIn) -> PolicyChange:
    """Sets the fields of the change in force to what they were before it, at its version: where something was changed since,
    nothing happens (409). A policy that was set for a time by something else goes back to what was before that."""
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    applied = PolicyChange.objects.select_related("server").filter(server=server, outcome=PolicyOutcome.APPLIED)
    if body.change is not None:
        row = applied.filter(pk=body.change).first()
        if row is None:
            raise HttpError(404, f"There is no change {body.change} that was applied on {server.name}.")
        return _take_back(user, row)
    found = policies.read_policy(server)
    row = applied.filter(version=found["version"]).first()  # the newest: a server that started again counts anew
    if row is not None and policies.undone(row):
        return _take_back(user, row)
    return _back_before_the_deadline(server, user, found)


def _take_back(user: User, row: PolicyChange) -> PolicyChange:
    if not policies.undone(row):
        raise Refused(409, "conflict", "This change set what was there already, so there is nothing to take back.")
    return policies.take_back(row, user)


def _back_before_the_deadline(server: Server, user: User, found: Json) -> PolicyChange:
    back = found.get("reverts_to") or {}
    changes = {name: back[name] for name, value in found["requested"].items() if name in back and back[name] != value}
    if not changes:
        raise SwitchRefused(
            f"The policy of {server.name} is not of a change made here, so there is none to take back.", 409, found
        )
    return policies.switch(
        server,
        changes,
        actor=user,
        actor_name=user.get_username(),
        reason="went back before the deadline",
        expected_version=found["version"],
    )


@router.get("/{int:server_id}/policy-changes", response=list[PolicyChangeOut], summary="What was switched, by whom")
@paginate(Pages)
def policy_changes(request: HttpRequest, server_id: int, outcome: str = "", actor: str = "") -> QuerySet[PolicyChange]:
    """Newest first, attempts that were refused too, and what was seen to be done by the server or from elsewhere."""
    rows = PolicyChange.objects.filter(server=server_of(request, server_id))
    rows = rows.filter(outcome=outcome) if outcome else rows
    return rows.filter(actor_name=actor) if actor else rows
