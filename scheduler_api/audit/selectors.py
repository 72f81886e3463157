"""Reading the audit trail: found by who, what, server, text and time; checked; exported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from scheduler_api.audit.chain import Broken, Head, check
from scheduler_api.audit.models import AuditEntry

CHUNK = 2000
COLUMNS = (
    *("seq", "at", "actor_name", "through", "address", "action", "subject", "server_id", "server_name", "ref"),
    *("before", "after", "why", "outcome", "previous", "hash"),
)


@dataclass(frozen=True, slots=True)
class Search:
    """Empty means any. `what` is an action or the noun before its dot; `text` is looked for in all words of a row."""

    who: str = ""
    what: str = ""
    server: int | None = None
    text: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None


def find(search: Search) -> QuerySet[AuditEntry]:
    """Newest first."""
    rows = AuditEntry.objects.all()
    if search.who:
        rows = rows.filter(actor_name__icontains=search.who)
    if search.what:
        rows = rows.filter(Q(action=search.what) | Q(action__startswith=f"{search.what}."))
    if search.server is not None:
        rows = rows.filter(server_id=search.server)
    if search.outcome:
        rows = rows.filter(outcome=search.outcome)
    if search.since is not None:
        rows = rows.filter(at__gte=search.since)
    if search.until is not None:
        rows = rows.filter(at__lt=search.until)
    for word in search.text.split():
        fields = ("subject", "why", "before", "after", "server_name", "actor_name", "address", "through", "ref")
        rows = rows.filter(Q(*((f"{name}__icontains", word) for name in fields), _connector=Q.OR))
    return rows


def length() -> int:
    """Rows of the whole trail: it never shrinks."""
    return AuditEntry.objects.count()


def nouns() -> list[str]:
    """What rows are about: the first words of their actions."""
    actions = AuditEntry.objects.order_by("action").values_list("action", flat=True).distinct()
    return sorted({action.partition(".")[0] for action in actions})


def head() -> Head:
    last = AuditEntry.objects.values("seq", "hash").first()
    return Head(last["seq"], last["hash"]) if last is not None else Head()


def verify() -> Head | Broken:
    """Reads the whole trail, in bounded memory."""
    return check(row.link() for row in AuditEntry.objects.order_by("seq").iterator(chunk_size=CHUNK))


def as_json(row: AuditEntry) -> dict[str, Any]:
    told: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
    told["at"] = row.link().content.at
    for name in ("before", "after"):
        told[name] = json.loads(told[name]) if told[name] else None
    return told


def as_cells(rows: QuerySet[AuditEntry]) -> Iterator[list[str | int | None]]:
    """Rows for a CSV file, its header first. Text that a spreadsheet would take as a formula gets an apostrophe in front."""
    yield list(COLUMNS)
    for row in rows.iterator(chunk_size=CHUNK):
        yield [_cell(row.link().content.at if name == "at" else getattr(row, name)) for name in COLUMNS]


def _cell(value: str | int | None) -> str | int | None:
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@", "\t", "\r")) else value
