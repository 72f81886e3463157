"""Policies by the clock: the windows of one server, and what became of each edge."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.policy_desk import Desk, Request
from dashboard.roles import Role, at_least, require
from dashboard.window_form import WindowForm
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.models import Server
from scheduler_api.policies import scheduling
from scheduler_api.policies.models import PolicyWindow


@require_http_methods(["GET", "HEAD", "POST"])
def windows(request: Request, pk: int) -> HttpResponse:
    """The list for everybody, the form for operators."""
    desk = Desk(request, get_object_or_404(Server, pk=pk))
    requested = (desk.policy or (desk.state or {}).get("policy") or {}).get("requested") or {}
    form = WindowForm(desk.server, requested, desk.fields, request.POST if request.method == "POST" else None)
    if request.method == "POST":
        require(request.user, Role.OPERATOR, desk.server)
        if form.is_valid() and _kept(request, form):
            return redirect("policy-windows", pk=pk)
    context = desk.context() | {"windows": scheduling.windows_of(desk.server), "form": form, "failure": desk.failure}
    return render(request, "policies/windows.html", context, status=422 if form.is_bound else 200)


def _kept(request: Request, form: WindowForm) -> bool:
    try:
        row = scheduling.keep(form.filled(), request.user)
    except RegistrationRefused as refusal:
        form.add_error(refusal.field if refusal.field in form.fields else None, refusal.text)
        return False
    messages.success(
        request, f"The window {row.name} is kept. Each edge is fired by the worker, once, and what became of it stands here."
    )
    return True


@require_POST
@at_least(Role.OPERATOR)
def window(request: Request, pk: int, window: int) -> HttpResponse:
    """Switches a window on or off, or removes it. A policy that it has set goes back at its deadline all the same."""
    row = get_object_or_404(PolicyWindow, pk=window, server_id=pk)
    match request.POST.get("act"):
        case "remove":
            scheduling.remove(row, request.user)
            messages.success(request, f"The window {row.name} is removed. A policy that it has set goes back at its deadline.")
        case "off":
            scheduling.set_enabled(row, False, request.user)
        case "on":
            scheduling.set_enabled(row, True, request.user)
    return redirect("policy-windows", pk=pk)
