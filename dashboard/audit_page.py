"""The audit page: what is asked for in its address, and rows in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from dashboard.first_view import words
from scheduler_api.access import Access, Role
from scheduler_api.audit import selectors
from scheduler_api.audit.models import AuditEntry
from scheduler_api.audit.selectors import Search

#: outcome -> mark of the sprite, tone
MARKS = {"done": ("ok", ""), "refused": ("warn", "is-warn"), "failed": ("failed", "is-bad"), "seen": ("info", "q")}
NAMES = ("who", "what", "server", "q", "outcome", "from", "to")
LONGEST = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters as they were typed; `wrong` names one that could not be read."""

    filters: dict[str, str]
    search: Search
    wrong: str = ""

    @property
    def any(self) -> bool:
        return any(self.filters.values())

    def query(self, **more: str) -> str:
        return urlencode({name: value for name, value in (self.filters | more).items() if value})


def asked(form: Mapping[str, str]) -> Asked:
    given = {name: form.get(name, "").strip()[:200] for name in NAMES}
    since, wrong_since = _moment(given["from"])
    until, wrong_until = _moment(given["to"], whole_day=True)
    search = Search(
        who=given["who"],
        what=given["what"],
        server=int(given["server"]) if given["server"].isdecimal() and len(given["server"]) < 19 else None,
        text=given["q"],
        outcome=given["outcome"],
        since=since,
        until=until,
    )
    wrong = (
        "A time is a date such as 2026-11-30, or a date and time such as 2026-11-30T14:00." if wrong_since or wrong_until else ""
    )
    return Asked(given, search, wrong)


def _moment(text: str, *, whole_day: bool = False) -> tuple[datetime | None, bool]:
    """(moment, whether it could not be read). `whole_day`: a date alone means its end."""
    if not text:
        return None, False
    try:
        if (moment := parse_datetime(text)) is not None and len(text) > 10:
            return (moment if timezone.is_aware(moment) else timezone.make_aware(moment)), False
        day = parse_date(text)
    except ValueError:
        return None, True
    if day is None:
        return None, True
    start = timezone.make_aware(datetime.combine(day, datetime.min.time()))
    return (start + timedelta(days=1) if whole_day else start), False


def visible(rows: QuerySet[AuditEntry], held: Access) -> QuerySet[AuditEntry]:
    """An admin of all servers sees all of it; others what happened to servers that they may see."""
    if held.may(Role.ADMIN, None):
        return rows
    return rows.filter(Q(server_id__in=list(held.servers().values_list("pk", flat=True))))


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Row:
    entry: AuditEntry
    mark: str
    tone: str
    changes: tuple[Change, ...]
    link: tuple[str, int] | None  # route and id of what it is about


def row(entry: AuditEntry) -> Row:
    mark, tone = MARKS.get(entry.outcome, ("info", "q"))
    noun, _, number = entry.ref.partition(" ")
    link = ("run", int(number)) if noun == "run" and number.isdecimal() else None
    return Row(entry, mark, tone, tuple(changes(entry.before, entry.after)), link)


def changes(before: str, after: str) -> list[Change]:
    """What stood and what stands, by name. A policy's "asked" is what it is compared with."""
    old, new = _mapping(before), _mapping(after)
    if isinstance(new.get("asked"), dict):
        new = {**new["asked"], **{name: value for name, value in new.items() if name not in ("asked", "in_force")}}
    elif isinstance(new.get("found"), dict):
        new = {**new["found"], **{name: value for name, value in new.items() if name != "found"}}
    names = [*old, *(name for name in new if name not in old)]
    return [
        Change(name, _said(old, name), _said(new, name))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _mapping(text: str) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {"value": value}


def _said(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return ""
    value = values[name]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ", ".join(value) or "none"
    else:
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else words(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def nouns() -> list[tuple[str, str]]:
    return [(noun, noun.replace("_", " ")) for noun in selectors.nouns()]
