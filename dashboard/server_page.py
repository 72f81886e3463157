"""What every page of a server shows above its content."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import get_script_prefix

from dashboard import first_view, present, roles
from dashboard.people.models import ShareLink
from dashboard.roles import Role
from scheduler_api.models import Server


def link_of(request: HttpRequest) -> ShareLink | None:
    """The share link by which somebody without an account looks at the page."""
    found: ShareLink | None = getattr(request, "slotboard_link", None)
    return found


def server_context(request: HttpRequest, server: Server, state: present.State | None, now: float) -> dict[str, Any]:
    """For the templates; `state` as docs/protocol.md section 2 has it, None without an observer, `now` in Unix seconds."""
    link = link_of(request)
    where = f"servers/{server.pk}" if link is None else f"shared/{link.pk}"
    return {
        "server": server,
        "state": state,
        "health": present.health_of(present.of_now(state, now)),
        "may_switch": roles.may(request.user, Role.OPERATOR, server),
        "revert": first_view.reverting(state, now) if state else None,
        "feed_path": f"{get_script_prefix()}ws/{where}/",
        "cannot": first_view.cannot_switch(state) if state else "",
    }
