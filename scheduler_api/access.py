"""Which servers somebody may see, and what they may do with each. The console says so through `settings.SLOTBOARD_ACCESS`.

That module has `of_user(user) -> Access` and `of_token(request, secret) -> Access | None`; the API asks it, and so do pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest

from scheduler_api.models import Server


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


def lower_of(one: Role, other: Role) -> Role:
    return min(one, other, key=RANK.__getitem__)


@dataclass(frozen=True, slots=True)
class Access:
    """`everywhere`: the role on all servers, those of tomorrow too; `by_server`: roles beyond that, by server id."""

    everywhere: Role | None = None
    by_server: Mapping[int, Role] = field(default_factory=dict)

    def role(self, server_id: int | None) -> Role | None:
        """On one server; without one, on all of them together."""
        held = [role for role in (self.everywhere, self.by_server.get(server_id) if server_id is not None else None) if role]
        return max(held, key=RANK.__getitem__, default=None)

    def best(self) -> Role | None:
        """The highest role on any server."""
        held = [role for role in (self.everywhere, *self.by_server.values()) if role]
        return max(held, key=RANK.__getitem__, default=None)

    def may(self, role: Role, server_id: int | None) -> bool:
        """Whether the role is held on this server; without one, on all servers."""
        held = self.role(server_id)
        return held is not None and RANK[held] >= RANK[role]

    def may_anywhere(self, role: Role) -> bool:
        held = self.best()
        return held is not None and RANK[held] >= RANK[role]

    def servers(self, role: Role = Role.VIEWER) -> QuerySet[Server]:
        """The servers on which at least this role is held."""
        if self.may(role, None):
            return Server.objects.all()
        return Server.objects.filter(pk__in=[pk for pk, held in self.by_server.items() if RANK[held] >= RANK[role]])

    def capped(self, role: Role, servers: frozenset[int] | None = None) -> Access:
        """At most this role, and on these servers alone when some are given."""
        if servers is None:
            everywhere = lower_of(self.everywhere, role) if self.everywhere else None
            return Access(everywhere, {pk: lower_of(held, role) for pk, held in self.by_server.items()})
        held_there = {pk: self.role(pk) for pk in servers}
        return Access(None, {pk: lower_of(held, role) for pk, held in held_there.items() if held})


NOBODY = Access()


def backend() -> Any:
    return import_module(settings.SLOTBOARD_ACCESS)


def of(request: HttpRequest) -> Access:
    """Of a request's token, else of its user; asked once in a request."""
    found: Access | None = getattr(request, "slotboard_access", None)
    if found is None:
        found = backend().of_user(request.user)
        request.slotboard_access = found  # type: ignore[attr-defined]
    return found
