from __future__ import annotations

from django.urls import path

from dashboard.feed.consumers import ServerFeed

websocket_urlpatterns = [path("ws/servers/<int:pk>/", ServerFeed.as_asgi())]
