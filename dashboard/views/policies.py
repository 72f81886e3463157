"""The policies of one server: what is in force, what could be, and the switch."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from dashboard import first_view
from dashboard.policy_desk import Desk, Request, Review
from dashboard.roles import Role, at_least, may
from scheduler_api import policies
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import PolicyChange, Server
from scheduler_api.policies import drifting, guarding, presets
from scheduler_api.policies.models import PolicyDrift, PolicyGuard


@require_safe
def show(request: Request, pk: int) -> HttpResponse:
    """With `?preset=` that policy is what the review shows."""
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    policy = presets.find(request.GET.get("preset", ""))
    if policy is None or desk.policy is None or not may(request.user, Role.OPERATOR, desk.server):
        return desk.render()
    pending = desk.proposed(policy.values, policy.name)
    if not pending.error:
        desk.dry_run(pending)
    return desk.render(pending)


@require_POST
@at_least(Role.OPERATOR)
def review(request: Request, pk: int) -> HttpResponse:
    """What the form asks for, checked by a dry run. Changes nothing."""
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    if desk.policy is None:
        return desk.render(status=502)
    pending = desk.pending()
    if not pending.error and pending.changes:
        desk.dry_run(pending)
    return desk.render(pending)


@require_POST
@at_least(Role.OPERATOR)
def switch(request: Request, pk: int) -> HttpResponse:
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    if desk.policy is None:
        return desk.render(status=502)
    act = request.POST.get("act", "")
    pending = desk.standing(act) if act in ("keep", "revert") else desk.pending()
    if not pending.error and not pending.reason:
        pending.error = "Say why: the reason goes into the audit."
    elif not pending.error and not pending.changes:
        pending.error = "Nothing differs from the policy that was asked for already."
    elif not pending.error and pending.severe and not pending.understood:
        pending.error = "This can stop requests from being served: confirm that you have read it, or set a cap."
    return desk.render(pending, status=422) if pending.error else _apply(desk, pending)


def _apply(desk: Desk, pending: Review) -> HttpResponse:
    guarded: dict[str, Any] = {"guards": pending.guards, "without_ttl": pending.unguarded_net} if pending.guards else {}
    try:
        change = policies.switch(
            desk.server,
            pending.changes,
            actor=desk.request.user,
            actor_name=desk.request.user.get_username(),
            reason=pending.reason,
            expected_version=desk.version,
            ttl_s=pending.ttl_s,
            **guarded,
        )
    except SwitchRefused as refusal:
        if refusal.current is not None and refusal.status == 409:
            return desk.conflict(pending, refusal.current)
        pending.error = refusal.text
        return desk.render(pending, status=refusal.status if refusal.status in (409, 422) else 502)
    except ServerUnreachable as failure:
        pending.error = failure.text
        return desk.render(pending, status=502)
    tell(desk.request, change)
    return redirect("policies", pk=desk.server.pk)


def tell(request: HttpRequest, change: Any) -> None:
    """What the server reports after the switch, in words."""
    in_force = ", ".join(f"{first_view.words(name)} {first_view.words(change.new.get(name))}" for name in change.changes)
    differs = [name for name, value in change.changes.items() if change.new.get(name) != value]
    text = f"Read back: {in_force}, version {change.version}, from iteration {change.effective_from_iteration} on."
    if differs:
        messages.warning(request, f"{text} What was asked for is not in force; the card below says why.")
    else:
        messages.success(request, text)


@require_POST
@at_least(Role.OPERATOR)
def revert(request: Request, pk: int, change: int) -> HttpResponse:
    """Takes back the change in force, in one click, unless the policy was changed since."""
    row = get_object_or_404(PolicyChange, pk=change, server_id=pk, outcome="applied")
    if not policies.undone(row):
        messages.info(request, "This change set what was there already, so there is nothing to take back.")
        return redirect("policies", pk=pk)
    return _one_click(request, pk, lambda: policies.take_back(row, request.user))


@require_POST
@at_least(Role.OPERATOR)
def drift(request: Request, pk: int) -> HttpResponse:
    """Applies what was there before again, or leaves the policy as it was found."""
    found = get_object_or_404(PolicyDrift, pk=_number(request.POST.get("drift", "")), server_id=pk)
    if found.state != PolicyDrift.State.OPEN:
        messages.info(request, "This was settled already.")
        return redirect("policies", pk=pk)
    if request.POST.get("act") == "leave":
        drifting.leave(found, request.user)
        messages.success(request, "The policy stays as it was found.")
        return redirect("policies", pk=pk)
    return _one_click(request, pk, lambda: drifting.reapply(found, request.user))


@require_POST
@at_least(Role.OPERATOR)
def guard(request: Request, pk: int) -> HttpResponse:
    """Takes a guard rail off. The policy stays."""
    found = get_object_or_404(PolicyGuard, pk=_number(request.POST.get("guard", "")), server_id=pk)
    guarding.call_off(found, request.user)
    messages.success(request, "The guard rail is off; the policy stays.")
    return redirect("policies", pk=pk)


def _one_click(request: Request, pk: int, act: Any) -> HttpResponse:
    try:
        tell(request, act())
    except (SwitchRefused, ServerUnreachable) as error:
        messages.error(request, error.text)
    return redirect("policies", pk=pk)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0
