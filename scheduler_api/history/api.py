"""The JSON API of what a server did: detail, fairness, stalls, history. Each also as CSV with `?format=csv`.

Times are the server's clock, Unix seconds. Without `to` a range ends with the newest that is kept.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse
from ninja import Router
from ninja.errors import HttpError

from scheduler_api import strict_json
from scheduler_api.api_auth import server_of
from scheduler_api.history import api_docs, ranges, store, table
from scheduler_api.history.api_docs import described
from scheduler_api.history.table import Json, Rows

router = Router(tags=["history"])

LIVE_S = 60.0
HISTORY_S = 24 * 3600.0
LONGEST_STALL_S = 15 * 60.0
LONGEST_S = 31 * 24 * 3600.0


def _range(request: HttpRequest, end: float, default_s: float) -> tuple[float, float]:
    """`from` and `to` of the query. Raises 422 for what is no range."""
    t_to = _time(request, "to", end)
    t_from = _time(request, "from", t_to - default_s)
    if not 0 <= t_from < t_to or t_to - t_from > LONGEST_S:
        raise HttpError(422, "from must lie before to, and at most 31 days before it.")
    return t_from, t_to


def _time(request: HttpRequest, name: str, default: float) -> float:
    raw = request.GET.get(name, "")
    try:
        value = float(raw) if raw else default
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e11:
        raise HttpError(422, f"{name} must be a time in Unix seconds.")
    return value


def _answer(request: HttpRequest, found: Json, name: str, rows: Iterable[Rows]) -> HttpResponse:
    """`rows`: one or more tables, parted by an empty line."""
    if request.GET.get("format", "json") != "csv":
        return HttpResponse(strict_json.dumps(found), content_type="application/json")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for number, part in enumerate(rows):
        if number:
            writer.writerow([])
        writer.writerows(part)
    headers = {"Content-Disposition": f'attachment; filename="slotboard-{name}.csv"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


@router.get(
    "/{int:server_id}/detail",
    summary="Iterations and tasks of a range within the last 15 minutes",
    openapi_extra=described(api_docs.DETAIL, table.iterations([]), ("table", "string", "of the CSV: iterations, or tasks")),
)
def detail(request: HttpRequest, server_id: int) -> HttpResponse:
    """At most 4,000 iterations, neighbours merged beyond that; at most 3,000 tasks, the longest waits first kept. In CSV `table`
    says which: `iterations` (the default) or `tasks`."""
    pk = server_of(request, server_id).pk
    t_from, t_to = _range(request, ranges.newest(pk), LIVE_S)
    found = ranges.detail(pk, t_from, t_to)
    wanted = request.GET.get("table", "iterations")
    rows = table.tasks(found["tasks"]) if wanted == "tasks" else table.iterations(found["iterations"])
    return _answer(request, found, f"{wanted if wanted == 'tasks' else 'iterations'}-{pk}", [rows])


@router.get(
    "/{int:server_id}/fairness",
    summary="How evenly slots and clients were served in a range within the last 15 minutes",
    openapi_extra=described(api_docs.FAIRNESS, table.fairness(api_docs.FAIRNESS)),
)
def fairness(request: HttpRequest, server_id: int) -> HttpResponse:
    pk = server_of(request, server_id).pk
    t_from, t_to = _range(request, ranges.newest(pk), LIVE_S)
    found = ranges.fairness(pk, t_from, t_to)
    return _answer(request, found, f"fairness-{pk}", [table.fairness(found)])


@router.get(
    "/{int:server_id}/history",
    summary="Sums of a minute or more, of the last 30 days",
    openapi_extra=described(api_docs.HISTORY, table.points([]), ("step", "integer", "seconds between points, at least")),
)
def history(request: HttpRequest, server_id: int) -> HttpResponse:
    """`step` in seconds: the smallest of 60, 600, 3600, 21600 and 86400 that is at least that, and that the range allows."""
    pk = server_of(request, server_id).pk
    t_from, t_to = _range(request, time.time(), HISTORY_S)
    raw = request.GET.get("step", "")
    if raw and not (raw.isascii() and raw.isdigit() and len(raw) < 9):
        raise HttpError(422, "step must be a whole number of seconds.")
    found = store.read(pk, t_from, t_to, int(raw) if raw else None)
    return _answer(request, found, f"history-{pk}", [table.points(found["points"])])


@router.get(
    "/{int:server_id}/stall",
    summary="Who kept a slot waiting, and what another prefill order would have done",
    openapi_extra=described(api_docs.STALL, table.stall(api_docs.STALL)),
)
def stall(request: HttpRequest, server_id: int, slot: int) -> HttpResponse:
    """Of the stretches in which the slot had work and got no token, the one that covers most of the range; 404 without one."""
    pk = server_of(request, server_id).pk
    t_from, t_to = _range(request, ranges.newest(pk), LIVE_S)
    if t_to - t_from > LONGEST_STALL_S:
        raise HttpError(422, "A stall is looked for in at most 15 minutes.")
    found = ranges.stall(pk, slot, t_from, t_to)
    if found is None:
        raise HttpError(404, f"Slot {slot} had no work without a token in this range.")
    return _answer(request, found, f"stall-{pk}-{slot}", [table.stall(found)])
