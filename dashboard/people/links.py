"""Share links: whoever has one may look at one live page or one result, without an account, until it ends.

The secret stands behind the # of the address, so no server and no proxy on the way logs it; the page that opens there trades it
for a cookie that only scripts of the server read.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from dashboard.people import access
from dashboard.people.models import ShareLink
from dashboard.people.tokens import digest, new_secret
from scheduler_api import audit
from scheduler_api.access import Access, Role
from scheduler_api.models import Server
from workers.models import Run

LONGEST = timedelta(days=30)


def make(
    by: User, *, server: Server | None = None, run: Run | None = None, lasts: timedelta, note: str = ""
) -> tuple[ShareLink, str]:
    """The link and its secret, which cannot be had again. Exactly one of `server` and `run`."""
    secret = new_secret()
    ends = timezone.now() + min(lasts, LONGEST)
    with transaction.atomic():
        link = ShareLink.objects.create(made_by=by, server=server, run=run, digest=digest(secret), expires_at=ends, note=note)
        audit.record("link.made", link.what, server=of_server(link), after={"expires": ends.isoformat(), "note": note})
    return link, secret


def shown(state: Mapping[str, Any]) -> dict[str, Any]:
    """A live state as a link shows it: neither where the server is nor who watches it."""
    return {**state, "server": {**state.get("server", {}), "url": ""}, "observer": ""}


def cookie_name(pk: int) -> str:
    return f"slotboard_share_{pk}"


def find(pk: int, secret: str) -> ShareLink | None:
    """The link, if this is its secret, it has not ended, and the person who made it may still see what it shows."""
    link = ShareLink.objects.select_related("server", "run__server", "made_by").filter(pk=pk).first()
    if link is None or not secret or not hmac.compare_digest(link.digest, digest(secret)) or not holds(link):
        return None
    return link


def holds(link: ShareLink) -> bool:
    if not link.valid or not link.made_by.is_active:
        return False
    return access.of_user(link.made_by).may(Role.OPERATOR, server_id_of(link))


def of_server(link: ShareLink) -> Server:
    """Whose live page, or on which the run was."""
    server = link.server if link.run is None else link.run.server
    assert server is not None
    return server


def server_id_of(link: ShareLink) -> int:
    pk = link.server_id if link.run is None else link.run.server_id
    assert pk is not None
    return pk


def opened_with(pk: int, cookies: Mapping[str, str]) -> ShareLink | None:
    return find(pk, cookies.get(cookie_name(pk), ""))


def keep(response: HttpResponseBase, request: HttpRequest, link: ShareLink, secret: str) -> None:
    """The cookie lives as long as the link. It goes to this console alone, and never with a request from another site's form."""
    response.set_cookie(
        cookie_name(link.pk),
        secret,
        expires=link.expires_at,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    ShareLink.objects.filter(pk=link.pk).update(opened_at=timezone.now())


def revoke(link: ShareLink) -> None:
    with transaction.atomic():
        if ShareLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit.record("link.revoked", link.what, server=of_server(link))


def access_of(link: ShareLink) -> Access:
    """A viewer of the one server."""
    return Access(None, {server_id_of(link): Role.VIEWER})
