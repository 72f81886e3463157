"""Which pages may open a live feed: those of the console itself, by the rule that Django has for forms.

Cookies do not know ports: another page on the same host would send the session along. So the page's origin has to be the very
host and port that it calls, or one of SLOTBOARD_TRUSTED_ORIGINS.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host


class SameOrigin:
    """ASGI, for WebSockets. A connection without an origin is none of a browser's, and is refused too."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        headers = dict(scope.get("headers", ()))
        allowed = may_open(headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1"))
        return await (self._app if allowed else WebsocketDenier())(scope, receive, send)


def may_open(origin: str, host: str) -> bool:
    """`origin` and `host` as the headers have them."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    if any(_trusted(parts.scheme, parts.netloc, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS):
        return True
    return parts.netloc.lower() == host.lower() and validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)


def _trusted(scheme: str, netloc: str, trusted: str) -> bool:
    """`https://*.example.org` stands for every name below it, as in Django."""
    wanted = urlsplit(trusted)
    if wanted.scheme != scheme:
        return False
    if wanted.netloc.startswith("*."):
        return netloc.endswith(wanted.netloc[1:])
    return wanted.netloc == netloc
