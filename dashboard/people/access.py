"""Who may do what where: memberships turned into an Access. `settings.SLOTBOARD_ACCESS` names this module."""

from __future__ import annotations

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest

from dashboard.people import tokens
from dashboard.people.models import Membership, Scope, ServerGroup
from scheduler_api.access import NOBODY, RANK, Access, Role


def of_user(user: AbstractBaseUser | AnonymousUser) -> Access:
    """One query. A superuser is an admin of all servers; somebody who is not active may do nothing."""
    if not isinstance(user, User) or not user.is_active:
        return NOBODY
    if user.is_superuser:
        return Access(Role.ADMIN)
    everywhere: Role | None = None
    by_server: dict[int, Role] = {}
    rows = Membership.objects.filter(user=user).order_by().values_list("role", "group__everything", "group__servers__pk")
    for name, everything, server_id in rows:
        role = Role(name)
        if everything:
            everywhere = role
        elif server_id is not None:
            by_server[server_id] = max(role, by_server.get(server_id, role), key=RANK.__getitem__)
    return Access(everywhere, by_server)


def of_token(request: HttpRequest, secret: str) -> Access | None:
    """What a token may do, which its person may do too; the request becomes that person's. None for one that is not valid."""
    token = tokens.find(secret)
    if token is None:
        return None
    tokens.used(token, request)
    request.user = token.user
    request.audit_through = f"token {token.name}"  # type: ignore[attr-defined]
    servers = None if token.group is None or token.group.everything else servers_of(token.group)
    return of_user(token.user).capped(tokens.ROLE_OF[Scope(token.scope)], servers)


def servers_of(group: ServerGroup) -> frozenset[int]:
    return frozenset(group.servers.values_list("pk", flat=True))
