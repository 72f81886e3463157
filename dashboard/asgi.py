from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
http = get_asgi_application()

from dashboard.body_limit import BodyLimit  # noqa: E402
from dashboard.feed.origin import SameOrigin  # noqa: E402
from dashboard.feed.routing import websocket_urlpatterns  # noqa: E402  needs the app registry
from scheduler_api import processes  # noqa: E402

application = ProtocolTypeRouter(
    {"http": BodyLimit(http), "websocket": SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))}
)
processes.hold("web")
