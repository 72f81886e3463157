"""Who may have a WebSocket open: asked when it opens, and again every few seconds while it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import batched
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from dashboard.people import access, links
from dashboard.people.models import ShareLink
from scheduler_api.access import Role
from scheduler_api.models import Server

LOGIN_NEEDED = 4401
UNKNOWN_SERVER = 4404
LINK_ENDED = 4410

_AT_ONCE = 500  # names in one query


@dataclass(frozen=True, slots=True)
class Ticket:
    """Why a socket may be open: a session of somebody who may see the server, or a share link."""

    server_id: int
    user_id: int = 0
    session_key: str = ""
    session_hash: str = ""
    link_id: int = 0


class Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def for_person(scope: Any, number: int) -> Ticket:
    """`number` is the server's. Raises Refused."""
    server_id = number
    user, session = scope["user"], scope["session"]
    if not user.is_authenticated or not user.is_active:
        raise Refused(LOGIN_NEEDED)
    seen = access.of_user(user).may(Role.VIEWER, server_id)
    if not seen or not Server.objects.filter(pk=server_id).exists():
        raise Refused(UNKNOWN_SERVER)
    return Ticket(server_id, user.pk, session.session_key or "", user.get_session_auth_hash())


def for_link(scope: Any, number: int) -> Ticket:
    """`number` is the link's. Raises Refused. A link to a run's result has no live feed."""
    link = links.opened_with(number, scope.get("cookies", {}))
    if link is None or link.server_id is None:
        raise Refused(LINK_ENDED)
    return Ticket(link.server_id, link_id=link.pk)


def ended(tickets: Collection[Ticket]) -> dict[Ticket, int]:
    """Those that hold no more, with the code to close them with. A few queries, however many tickets there are."""
    shared = [ticket for ticket in tickets if ticket.link_id]
    people = [ticket for ticket in tickets if not ticket.link_id]
    return (_ended_links(shared) if shared else {}) | (_ended_people(people) if people else {})


def _ended_links(tickets: list[Ticket]) -> dict[Ticket, int]:
    rows = ShareLink.objects.select_related("made_by", "run").filter(pk__in={ticket.link_id for ticket in tickets})
    holding = {link.pk for link in rows if links.holds(link)}
    return {ticket: LINK_ENDED for ticket in tickets if ticket.link_id not in holding}


def _ended_people(tickets: list[Ticket]) -> dict[Ticket, int]:
    sessions = _living({ticket.session_key for ticket in tickets})
    users = User.objects.in_bulk({ticket.user_id for ticket in tickets})
    hashes = {pk: user.get_session_auth_hash() for pk, user in users.items() if user.is_active}
    held = {pk: access.of_user(users[pk]) for pk in hashes}
    found = {}
    for ticket in tickets:
        if ticket.session_key not in sessions or hashes.get(ticket.user_id) != ticket.session_hash:
            found[ticket] = LOGIN_NEEDED
        elif not held[ticket.user_id].may(Role.VIEWER, ticket.server_id):
            found[ticket] = UNKNOWN_SERVER
    return found


def _living(keys: Iterable[str]) -> set[str]:
    now = timezone.now()
    found: set[str] = set()
    for some in batched(keys, _AT_ONCE):
        rows = Session.objects.filter(session_key__in=some, expire_date__gt=now)
        found.update(rows.values_list("session_key", flat=True))
    return found
