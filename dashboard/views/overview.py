"""All servers at a glance, worst first, and the rail that every page shows."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard import present
from scheduler_api import selectors


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    return render(request, "overview.html", _context(request))


@require_safe
def cards(request: HttpRequest) -> HttpResponse:
    """The part of the overview that is polled."""
    return render(request, "overview_cards.html", _context(request))


@require_safe
def rail(request: HttpRequest) -> HttpResponse:
    """The servers of the rail; `at` is the server whose page asks."""
    at = request.GET.get("at", "")
    on_server = request.GET.get("page", "") in ("server", "policies", "policy-switch")
    return render(request, "partials/rail_links.html", {"rail_at": int(at) if on_server and at.isdecimal() else None})


def _context(request: HttpRequest) -> dict[str, object]:
    servers = selectors.list_servers()
    states = selectors.live_states([server.pk for server in servers])
    return {"entries": present.rail(servers, states)}
