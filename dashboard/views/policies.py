"""The policies of one server: what is in force, what could be, and the switch."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.roles import Role, at_least
from scheduler_api import selectors
from scheduler_api.models import Server


@require_safe
def show(request: HttpRequest, pk: int) -> HttpResponse:
    server = get_object_or_404(Server, pk=pk)
    return render(request, "policies/page.html", {"server": server, "changes": selectors.policy_changes(server)})


@require_POST
@at_least(Role.OPERATOR)
def review(request: HttpRequest, pk: int) -> HttpResponse:
    return redirect("policies", pk=pk)


@require_POST
@at_least(Role.OPERATOR)
def switch(request: HttpRequest, pk: int) -> HttpResponse:
    return redirect("policies", pk=pk)
