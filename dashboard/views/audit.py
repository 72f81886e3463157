"""Who changed which policy, when, and why."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard import policy_page, roles
from scheduler_api import selectors
from scheduler_api.models import PolicyOutcome

SHOWN = 200
READ = 2000


@require_safe
def changes(request: HttpRequest) -> HttpResponse:
    filters = {name: request.GET.get(name, "").strip() for name in ("server", "outcome", "q")}
    within = roles.visible(request.user)
    servers = selectors.list_servers(within)
    server = next((each for each in servers if str(each.pk) == filters["server"]), None)
    wanted = filters["q"].lower()
    found = [
        change
        for change in selectors.policy_changes(server, READ, within)
        if filters["outcome"] in ("", change.outcome) and (wanted in change.actor_name.lower() or wanted in change.reason.lower())
    ]
    context = {
        "changes": [(change, policy_page.change_words(change)) for change in found[:SHOWN]],
        "more": len(found) > SHOWN,
        "servers": servers,
        "outcomes": PolicyOutcome.choices,
        "filters": filters,
        "filtered": any(filters.values()),
    }
    return render(request, "audit.html", context)
