from __future__ import annotations

from django.conf import settings
from django.urls import path

from dashboard.feed.consumers import LinkFeed, ServerFeed

ROUTES = {"ws/servers/<int:pk>/": ServerFeed, "ws/shared/<int:pk>/": LinkFeed}
# Channels matches the whole path: with a URL prefix, a proxy may hand it on or take it off.
_PREFIX = (settings.FORCE_SCRIPT_NAME or "").strip("/")

websocket_urlpatterns = [
    path(prefix + route, consumer.as_asgi()) for route, consumer in ROUTES.items() for prefix in {"", f"{_PREFIX}/".lstrip("/")}
]
