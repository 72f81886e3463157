"""Who may do what. A viewer looks; an operator switches policies and runs experiments; an admin also registers servers.

A role is membership in the Django group of its name; a superuser is an admin. Checked on the server, at every write.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase

type View = Callable[..., HttpResponseBase]


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role:
    if not isinstance(user, User):
        return Role.VIEWER
    if user.is_superuser:
        return Role.ADMIN
    names = set(user.groups.values_list("name", flat=True))
    return next((role for role in (Role.ADMIN, Role.OPERATOR) if role.value in names), Role.VIEWER)


def may(user: AbstractBaseUser | AnonymousUser, role: Role) -> bool:
    return user.is_authenticated and RANK[role_of(user)] >= RANK[role]


def at_least(role: Role) -> Callable[[View], View]:
    """A view for this role and those above; others get 403."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not may(request.user, role):
                raise PermissionDenied(f"This needs the role {role.value}.")
            return view(request, *args, **kwargs)

        return guarded

    return decorate
