"""One server, live; and the form that registers one."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import get_script_prefix
from django.views.decorators.csp import csp_override
from django.views.decorators.http import require_http_methods, require_safe

from dashboard import definitions, first_view, present, units
from dashboard.csp import CHARTS
from dashboard.forms import ServerForm
from dashboard.people import links
from dashboard.roles import Role, at_least
from dashboard.server_page import link_of, server_context
from scheduler_api import selectors, servers
from scheduler_api.exceptions import RegistrationRefused, ServerUnreachable
from scheduler_api.models import Server

BLANK_SLOT = {"id": 0, "state": "idle"}


@require_safe
@csp_override(CHARTS)
def live(request: HttpRequest, pk: int) -> HttpResponse:
    server = get_object_or_404(Server, pk=pk)
    state = selectors.live_state(pk)
    now = time.time()
    link = link_of(request)
    if link is not None and state is not None:
        state = links.shown(state)
    where = f"api/servers/{pk}" if link is None else f"shared/{link.pk}"
    context = server_context(request, server, state, now) | {
        "blank_row": first_view.slot_row(BLANK_SLOT, now),
        "api_path": f"{get_script_prefix()}{where}/",
        "measures": definitions.MEASURES,
        "percentiles": definitions.PERCENTILES,
        "history_link": True,
    }
    if state is not None:
        context |= _first_view(server, state, now)
        if link is not None:
            context["example"] = ""
    return render(request, "servers/live.html", context)


def _first_view(server: Server, state: present.State, now: float) -> dict[str, Any]:
    slots = state.get("slots") or []
    pool = first_view.pool(state)
    return {
        "trouble": first_view.trouble(state, now),
        "facts": first_view.facts(state),
        "chips": first_view.chips(state),
        "figures": first_view.figures(state),
        "rows": [first_view.slot_row(slot, now, pooled=bool(pool)) for slot in slots],
        "pool": pool,
        "units": units.rows(state),
        "units_title": units.title(state),
        "slot_summary": first_view.summary(slots) if slots else "",
        "all_idle": bool(slots) and state["health"]["state"] == "up" and all(slot["state"] == "idle" for slot in slots),
        "example": _example_request(server),
    }


def _example_request(server: Server) -> str:
    key = ' \\\n  -H "Authorization: Bearer $LLAMA_API_KEY"' if server.api_key else ""
    asked: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 200}
    path = "/completion"
    if server.kind in servers.OF_V1:
        messages = [{"role": "user", "content": "Once upon a time"}]
        asked, path = {"model": server.model or "MODEL", "messages": messages, "max_tokens": 200}, "/v1/chat/completions"
    body = shlex.quote(json.dumps(asked))
    return f"curl {server.base_url}{path}{key} \\\n  -H 'Content-Type: application/json' -d {body}"


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.ADMIN)
def add(request: HttpRequest) -> HttpResponse:
    form = ServerForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (server := _register(request, form)):
        kind = server.get_kind_display()
        messages.success(request, f"{server.name} is registered as {kind}; what it tells appears within seconds.")
        return redirect("server", pk=server.pk)
    return render(request, "servers/add.html", {"form": form}, status=422 if form.is_bound else 200)


def _register(request: HttpRequest, form: ServerForm) -> Server | None:
    """None when it was refused; the form then says why, at the field at fault."""
    given = form.cleaned_data
    try:
        return servers.register(
            given["name"],
            given["base_url"],
            given["kind"],
            given["api_key"],
            request.user if request.user.is_authenticated else None,
            quiet=given["quiet"],
            model=given["model"],
        )
    except RegistrationRefused as refusal:
        form.add_error(refusal.field if refusal.field in form.fields else None, refusal.text)
    except ServerUnreachable as failure:
        form.add_error("base_url", failure.text)
    return None
