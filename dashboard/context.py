"""What every page's frame shows: version, rail, role."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from dashboard import roles


def frame(request: HttpRequest) -> dict[str, Any]:
    link = getattr(request, "slotboard_link", None)
    bare = link is not None or "kiosk" in request.GET
    shown = {"version": settings.VERSION, "share_link": link, "frame_base": "shared/base.html" if bare else "base.html"}
    if link is not None or not request.user.is_authenticated:
        return shown
    from scheduler_api import selectors

    return shown | {
        "role": roles.role_of(request.user, getattr(request, "slotboard_server", None)),
        "may_admin": roles.may(request.user, roles.Role.ADMIN),
        "rail_servers": selectors.list_servers(roles.visible(request.user)),
    }
