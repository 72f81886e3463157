"""Secrets that are shown once and kept as a digest: API tokens and share links.

A secret has 256 random bits, so a plain SHA-256 keeps it: there is nothing to guess from.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from dashboard.people.models import ApiToken, Scope, ServerGroup
from scheduler_api import audit
from scheduler_api.access import Role

#: Begins every token, so that scanners for leaked secrets know one when they see it.
PREFIX = "slotboard_"
ROLE_OF = {Scope.READ: Role.VIEWER, Scope.OPERATE: Role.OPERATOR, Scope.ADMIN: Role.ADMIN}
#: "Last used" is kept to the minute: a script that asks ten times a second writes once.
USED_EVERY = timedelta(minutes=1)


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def make(
    user: User, name: str, scope: Scope, *, group: ServerGroup | None = None, lasts: timedelta | None = None
) -> tuple[ApiToken, str]:
    """The token and its secret, which cannot be had again."""
    secret = PREFIX + new_secret()
    expires = timezone.now() + lasts if lasts is not None else None
    with transaction.atomic():
        token = ApiToken.objects.create(
            user=user,
            name=name,
            scope=scope,
            group=group,
            expires_at=expires,
            start=secret[len(PREFIX) : len(PREFIX) + 6],
            digest=digest(secret),
        )
        where = group.name if group is not None else "all that its person may see"
        audit.record("token.made", str(token), after={"scope": scope, "servers": where, "expires": str(expires)})
    return token, secret


def find(secret: str) -> ApiToken | None:
    """The token of this secret, unless it is revoked or expired or its person is deactivated."""
    if not secret.startswith(PREFIX):
        return None
    token = ApiToken.objects.select_related("user", "group").filter(digest=digest(secret)).first()
    return token if token is not None and token.valid and token.user.is_active else None


def used(token: ApiToken, request: HttpRequest) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > USED_EVERY:
        address = request.META.get("REMOTE_ADDR") or None
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now, last_used_from=address)


def revoke(token: ApiToken) -> None:
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record("token.revoked", f"{token} of {token.user}")
