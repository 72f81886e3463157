"""Who asks the API: a session, or a token in `Authorization: Bearer`. A token needs no CSRF token, a session does."""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.auth.models import User
from django.core.cache import cache
from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer, django_auth

from scheduler_api import access
from scheduler_api.access import Access, Role
from scheduler_api.models import Server

#: Wrong tokens from one address within `WINDOW_S`, after which none from there is looked at. Counted in each web process.
MOST_FAILURES = 20
WINDOW_S = 60


class Token(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> Access:
        """Raises 401 rather than trying the session next: who sends a token means it."""
        address = request.META.get("REMOTE_ADDR", "")
        key = f"token-failures-{address}"
        if cache.get(key, 0) >= MOST_FAILURES:
            raise HttpError(429, "Too many wrong tokens from this address; wait a minute.")
        found: Access | None = access.backend().of_token(request, token)
        if found is None:
            cache.add(key, 0, WINDOW_S)
            cache.incr(key)
            raise HttpError(401, "This token is not valid: it is wrong, revoked or expired.")
        request.slotboard_access = found  # type: ignore[attr-defined]
        request.slotboard_caller = f"token:{hashlib.sha256(token.encode()).hexdigest()[:20]}"  # type: ignore[attr-defined]
        return found


AUTH: list[Any] = [Token(), django_auth]


def server_of(request: HttpRequest, pk: int) -> Server:
    """Raises 404 for a server that is not there, or not for this person to see."""
    try:
        return access.of(request).servers().get(pk=pk)
    except Server.DoesNotExist:
        raise HttpError(404, "No such server.") from None


def require(request: HttpRequest, role: Role, server: Server | None) -> User:
    """Who writes. Raises 403 for less than the role on this server; what is about no server in particular is about all."""
    user = request.user
    if not isinstance(user, User) or not access.of(request).may(role, server.pk if server is not None else None):
        raise HttpError(403, f"This needs the role {role.value} on {server.name if server is not None else 'all servers'}.")
    return user


def require_anywhere(request: HttpRequest, role: Role) -> User:
    """Who writes what belongs to no server: scenarios, presets. Raises 403 for somebody without the role on any."""
    user = request.user
    if not isinstance(user, User) or not access.of(request).may_anywhere(role):
        raise HttpError(403, f"This needs the role {role.value} on a server.")
    return user


def sees(request: HttpRequest, server: Server | None) -> bool:
    """Whether something of this server exists for who asks; what is about none exists for everybody with a role."""
    held = access.of(request)
    return held.may(Role.VIEWER, server.pk) if server is not None else held.best() is not None
