"""Policies under names and in files: kept, exported, imported."""

from __future__ import annotations

import re

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from dashboard.policy_desk import Desk, Request
from dashboard.roles import Role, at_least
from scheduler_api.models import Server
from scheduler_api.policies import presets
from scheduler_api.policies.models import PolicyPreset
from scheduler_api.policies.values import MOST_BYTES, Named, PolicyFileRefused, exported, imported, named


@require_safe
def export(request: Request, pk: int) -> HttpResponse:
    """The requested policy of a server, as a file that `import_policy` takes."""
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    if desk.policy is None:
        return desk.render(status=502)
    meaning = f"As {desk.server.name} had it at version {desk.policy['version']}."
    return _file(Named(desk.server.name, meaning, desk.policy["requested"]))


@require_safe
def export_preset(request: HttpRequest, key: str) -> HttpResponse:
    policy = presets.find(key)
    if policy is None:
        raise Http404("No such preset.")
    return _file(policy)


def _file(policy: Named) -> HttpResponse:
    name = re.sub(r"[^a-z0-9]+", "-", policy.name.lower()).strip("-") or "policy"
    response = HttpResponse(exported(policy), content_type="application/json")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.policy.json"'
    return response


@require_POST
@at_least(Role.OPERATOR)
def import_policy(request: Request, pk: int) -> HttpResponse:
    """A file or a text: reviewed on this server, or kept as a preset. Switches nothing by itself."""
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    try:
        policy = imported(_given(request))
    except PolicyFileRefused as refusal:
        messages.error(request, refusal.text)
        return redirect("policies", pk=pk)
    if request.POST.get("act") == "keep":
        return _keep(request, pk, policy)
    if desk.policy is None:
        return desk.render(status=502)
    pending = desk.proposed(policy.values, policy.name)
    if not pending.error:
        desk.dry_run(pending)
    return desk.render(pending)


def _given(request: HttpRequest) -> bytes:
    """Raises PolicyFileRefused."""
    file = request.FILES.get("file")
    if file is not None:
        return bytes(file.read(MOST_BYTES + 1))
    return request.POST.get("text", "").encode("utf-8", "replace")


@require_POST
@at_least(Role.OPERATOR)
def preset_add(request: Request, pk: int) -> HttpResponse:
    """Keeps what the server is asked for now under a name."""
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    if desk.policy is None:
        return desk.render(status=502)
    try:
        policy = named(request.POST.get("name", ""), request.POST.get("meaning", ""), desk.policy["requested"])
    except PolicyFileRefused as refusal:
        messages.error(request, refusal.text)
        return redirect("policies", pk=pk)
    return _keep(request, pk, policy)


def _keep(request: Request, pk: int, policy: Named) -> HttpResponse:
    if policy.name in {each.name for each in presets.BUILT_IN.values()}:
        messages.error(request, f"{policy.name} comes with the console; choose another name.")
    else:
        presets.keep(policy, request.user)
        messages.success(request, f"{policy.name} is kept as a preset.")
    return redirect("policies", pk=pk)


@require_POST
@at_least(Role.OPERATOR)
def preset_remove(request: Request, pk: int) -> HttpResponse:
    key = request.POST.get("preset", "")
    row = get_object_or_404(PolicyPreset, pk=int(key) if key.isdecimal() and len(key) < 19 else 0)
    presets.remove(row, request.user)
    messages.success(request, f"The preset {row.name} is removed. No server changes.")
    return redirect("policies", pk=pk)
