"""Who may do what. A viewer looks; an operator switches policies and runs experiments; an admin also registers servers.

A role is held in a group of servers (dashboard/people). Checked on the server, at every write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase

from scheduler_api import access
from scheduler_api.access import RANK, Access, Role
from scheduler_api.models import Server

__all__ = ["RANK", "Access", "Role", "access_of", "at_least", "may", "require", "role_of", "visible"]

type View = Callable[..., HttpResponseBase]
type Person = AbstractBaseUser | AnonymousUser


def access_of(user: Person) -> Access:
    """Asked once for each user object: a request has one of its own."""
    found: Access | None = getattr(user, "_slotboard_access", None)
    if found is None:
        found = access.backend().of_user(user)
        user._slotboard_access = found  # type: ignore[union-attr]
    return found


def role_of(user: Person, server: Server | None = None) -> Role | None:
    """On a server; without one the highest on any. None for somebody who has no role yet."""
    held = access_of(user)
    return held.best() if server is None else held.role(server.pk)


def may(user: Person, role: Role, server: Server | None = None) -> bool:
    """Whether the role is held on this server. Without one: on any server, but an admin's work without a server (people, rules,
    registering) needs the role on all servers."""
    held = access_of(user)
    if server is not None:
        return held.may(role, server.pk)
    return held.may(role, None) if role is Role.ADMIN else held.may_anywhere(role)


def require(user: Person, role: Role, server: Server | None = None) -> None:
    """Raises PermissionDenied."""
    if not may(user, role, server):
        where = f" on {server.name}" if server is not None else ""
        raise PermissionDenied(f"This needs the role {role.value}{where}.")


def visible(user: Person, role: Role = Role.VIEWER) -> QuerySet[Server]:
    """The servers on which this role is held."""
    return access_of(user).servers(role)


def at_least(role: Role) -> Callable[[View], View]:
    """A view for this role and those above; others get 403. On a page of one server the role on that server counts."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            require(request.user, role, getattr(request, "slotboard_server", None))
            return view(request, *args, **kwargs)

        return guarded

    return decorate
