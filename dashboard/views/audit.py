"""Who did what, from where, when, and why; found, paged, exported."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard import audit_page, roles
from dashboard.roles import Role
from scheduler_api import selectors as servers
from scheduler_api.audit import selectors
from scheduler_api.audit.models import AuditEntry

A_PAGE = 50
OUTCOMES = ("done", "refused", "failed", "seen")


@require_safe
def changes(request: HttpRequest) -> HttpResponse:
    asked = audit_page.asked(request.GET)
    page = Paginator(_rows(request, asked), A_PAGE).get_page(request.GET.get("page", ""))
    context = {
        "rows": [audit_page.row(entry) for entry in page.object_list],
        "page": page,
        "asked": asked,
        "query": asked.query(),
        "servers": servers.list_servers(roles.visible(request.user)),
        "nouns": audit_page.nouns(),
        "outcomes": OUTCOMES,
        "sees_addresses": _sees_addresses(request),
        "head": selectors.head() if _sees_addresses(request) else None,
    }
    return render(request, "audit.html", context, status=422 if asked.wrong else 200)


@require_safe
def export(request: HttpRequest, form: str) -> HttpResponseBase:
    """All rows that the filters find, as CSV or as JSON lines within one array."""
    rows = _rows(request, audit_page.asked(request.GET))
    hidden = () if _sees_addresses(request) else ("address",)
    made = _csv(rows, hidden) if form == "csv" else _json(rows, hidden)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
    response = StreamingHttpResponse(made, content_type=kind)
    response.headers["Content-Disposition"] = f'attachment; filename="audit-{timezone.now():%Y-%m-%d}.{form}"'
    return response


def _rows(request: HttpRequest, asked: audit_page.Asked) -> QuerySet[AuditEntry]:
    return audit_page.visible(selectors.find(asked.search), roles.access_of(request.user))


def _sees_addresses(request: HttpRequest) -> bool:
    return roles.may(request.user, Role.ADMIN)


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, text: str) -> str:
        return text


def _csv(rows: QuerySet[AuditEntry], hidden: tuple[str, ...]) -> Iterator[Any]:
    writer = csv.writer(_Echo())
    shown = [place for place, name in enumerate(selectors.COLUMNS) if name not in hidden]
    for cells in selectors.as_cells(rows):
        yield writer.writerow([cells[place] for place in shown])


def _json(rows: QuerySet[AuditEntry], hidden: tuple[str, ...]) -> Iterator[str]:
    first = True
    yield "["
    for entry in rows.iterator(chunk_size=selectors.CHUNK):
        told = {name: value for name, value in selectors.as_json(entry).items() if name not in hidden}
        yield ("\n" if first else ",\n") + json.dumps(told, ensure_ascii=False)
        first = False
    yield "\n]\n"
