"""All servers at a glance, worst first, and the rail that every page shows."""

from __future__ import annotations

import time

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard import cards as made
from dashboard import present, roles
from dashboard.roles import Role
from scheduler_api import selectors
from scheduler_api.alerts.selectors import open_by_server
from scheduler_api.policies.drifting import open_drifts
from workers import selectors as runs

LATEST_RUNS = 200


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
    on_server = request.GET.get("page", "") in (
        "server",
        "server-history",
        "policies",
        "policy-switch",
        "policy-review",
        "policy-windows",
        "policy-import",
    )
    return render(request, "partials/rail_links.html", {"rail_at": int(at) if on_server and at.isdecimal() else None})


def _context(request: HttpRequest) -> dict[str, object]:
    within = roles.visible(request.user)
    servers, now = selectors.list_servers(within), time.time()
    states = present.states_of_now(selectors.live_states([server.pk for server in servers]), now)
    active = {
        run.server_id: run for run in reversed(runs.list_runs(limit=LATEST_RUNS, within=within)) if run.active and run.server_id
    }
    ids = [server.pk for server in servers]
    alerts, drifts = open_by_server(ids), open_drifts(ids)
    beside = {pk: made.Beside(alerts.get(pk), drifts.get(pk)) for pk in ids}
    every = made.of(servers, states, active, now, beside)
    query, only = request.GET.get("q", "").strip(), request.GET.get("only", "")
    return {
        "all_cards": every,
        "cards": [each for each in every if query.lower() in each.name.lower() and only in ("", each.state)],
        "total": made.total(every),
        "filters": made.filters(every),
        "query": query,
        "only": only,
        "may_add": roles.may(request.user, Role.ADMIN),
    }
