from __future__ import annotations

from django.conf import settings
from django.urls import path

from dashboard.feed.consumers import ServerFeed

_ROUTE = "ws/servers/<int:pk>/"
# Channels matches the whole path: with a URL prefix, a proxy may hand it on or take it off.
_PREFIX = (settings.FORCE_SCRIPT_NAME or "").strip("/")

websocket_urlpatterns = [path(route, ServerFeed.as_asgi()) for route in {_ROUTE, f"{_PREFIX}/{_ROUTE}".lstrip("/")}]
