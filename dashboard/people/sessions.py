"""Sessions of a person: listing and ending them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User

from scheduler_api import audit

#: What a user agent tells about its program and its system, first match wins.
_PROGRAMS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS", "Mac"),
    ("Linux", "Linux"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    pk: int
    what: str
    agent: str
    ip: str
    began_at: datetime
    seen_at: datetime
    current: bool


def words(agent: str) -> str:
    """ "Firefox on Linux"; the beginning of the agent itself when neither is known."""
    program = next((name for part, name in _PROGRAMS if part in agent), "")
    system = next((name for part, name in _SYSTEMS if part in agent), "")
    return " on ".join(part for part in (program, system) if part) or agent[:40] or "unknown program"


def of(user: User, current_key: str | None) -> list[Shown]:
    """The one that asks first, then the last seen. Those that have ended meanwhile are forgotten."""
    rows = UserSession.objects.purge_and_list(user)
    shown = [
        Shown(
            row.pk,
            words(row.user_agent),
            row.user_agent,
            row.ip,
            row.created_at,
            row.last_seen_at,
            row.session_key == current_key,
        )
        for row in rows
    ]
    return sorted(shown, key=lambda each: (not each.current, -each.seen_at.timestamp()))


def end(user: User, pk: int) -> bool:
    """Whether there was one."""
    row = UserSession.objects.filter(user=user, pk=pk).first()
    if row is not None:
        audit.record("session.ended", f"{words(row.user_agent)}, of {user.get_username()}")
        row.end()
    return row is not None


def end_all(user: User, but: str | None = None) -> int:
    """Ends them all, except the one with the key `but`; says how many."""
    rows: Iterable[UserSession] = UserSession.objects.filter(user=user).exclude(session_key=but or "")
    ended = 0
    for row in rows:
        row.end()
        ended += 1
    if ended:
        audit.record("session.ended", f"{ended} session{'s' if ended > 1 else ''} of {user.get_username()}")
    return ended
