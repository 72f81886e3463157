"""What every page's frame shows: version, rail, role."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from dashboard import roles


def frame(request: HttpRequest) -> dict[str, Any]:
    if not request.user.is_authenticated:
        return {"version": settings.VERSION}
    from scheduler_api import selectors

    return {
        "version": settings.VERSION,
        "role": roles.role_of(request.user, getattr(request, "slotboard_server", None)),
        "rail_servers": selectors.list_servers(roles.visible(request.user)),
    }
