"""One server, live; and the form that registers one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.roles import Role, at_least
from scheduler_api import selectors
from scheduler_api.models import Server


@require_safe
def live(request: HttpRequest, pk: int) -> HttpResponse:
    server = get_object_or_404(Server, pk=pk)
    return render(request, "servers/live.html", {"server": server, "state": selectors.live_state(pk)})


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def add(request: HttpRequest) -> HttpResponse:
    return render(request, "servers/add.html", {})
