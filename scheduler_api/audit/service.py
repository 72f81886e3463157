"""Appending to the audit trail, one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.utils import timezone

from scheduler_api.audit import origin as origins
from scheduler_api.audit.chain import GENESIS, canonical, digest

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

    from scheduler_api.audit.models import AuditEntry
    from scheduler_api.models import Server

DONE, REFUSED, FAILED, SEEN = "done", "refused", "failed", "seen"
HIDDEN = "(hidden)"
#: Values under these names never reach the trail, whoever hands them over.
_SECRET = ("api_key", "secret", "password", "token", "key", "digest", "hash")
#: Holds back other writers of the trail until this transaction ends (PostgreSQL); SQLite has one writer anyway.
_LOCK = 0x510B0A4D


def record(
    action: str,
    subject: str,
    *,
    server: Server | None = None,
    actor: AbstractBaseUser | AnonymousUser | None = None,
    actor_name: str = "",
    before: Any = None,
    after: Any = None,
    why: str = "",
    outcome: str = DONE,
    ref: str = "",
    through: str = "",
) -> AuditEntry:
    """Appends one row. Raises DatabaseError, so that a write inside the same transaction does not happen unrecorded.

    `action` is noun and verb, "recipient.changed"; `subject` says what, in words. `before` and `after` are JSON values; secrets
    among them are hidden here as well. Without `actor` or `actor_name` it is who the request belongs to.
    """
    from scheduler_api.audit.models import AuditEntry

    origin = origins.current()
    known = actor is not None and actor.is_authenticated
    row = AuditEntry(
        actor_id=(actor.pk if known and actor is not None else None) if actor or actor_name else origin.actor_id,
        actor_name=_line(actor_name or (actor.get_username() if known and actor is not None else origin.actor_name), 150),
        through=_line(through or origin.through, 100),
        address=_line(origin.address, 100),
        action=_line(action, 60),
        subject=_line(subject, 500),
        server_id=server.pk if server is not None else None,
        server_name=_line(server.name, 80) if server is not None else "",
        ref=_line(ref, 60),
        before=_json(before),
        after=_json(after),
        why=_clean(why),
        outcome=outcome,
    )
    with transaction.atomic():
        _append(row)
    return row


def _append(row: AuditEntry) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    last = type(row).objects.order_by("-seq").values("seq", "hash").first()
    row.seq, row.previous = (last["seq"] + 1, last["hash"]) if last is not None else (1, GENESIS)
    row.at = timezone.now()
    row.hash = digest(row.link().content, row.previous)
    row.save()


def _line(text: str, most: int) -> str:
    return _clean(text)[:most]


def _clean(text: str) -> str:
    """What every database can hold, and gives back as it was."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _json(value: Any) -> str:
    return "" if value is None else _clean(canonical(without_secrets(value)))


def without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _hidden(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return value


def _hidden(name: str, value: Any) -> Any:
    """Set or not is told; what it is, is not."""
    secret = any(name.lower() == word or name.lower().endswith(f"_{word}") for word in _SECRET)
    return HIDDEN if secret and isinstance(value, str) and value else without_secrets(value)
