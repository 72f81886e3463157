"""What a server did over the last days, and the experiment runs of a range."""

from __future__ import annotations

import math
import time
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import get_script_prefix, reverse
from django.utils import timezone
from django.views.decorators.csp import csp_override
from django.views.decorators.http import require_safe

from dashboard.charts import history as charts
from dashboard.charts.base import Figure
from dashboard.csp import CHARTS
from dashboard.present import State
from dashboard.server_page import server_context
from scheduler_api import selectors
from scheduler_api.history import store
from scheduler_api.models import Server
from workers import selectors as experiments

HOUR, DAY = 3600, 86_400
LASTS = ((HOUR, "1 h"), (6 * HOUR, "6 h"), (DAY, "24 h"), (7 * DAY, "7 d"), (30 * DAY, "30 d"))
FIRST = DAY
SHORTEST_S, LONGEST_S = 120.0, 31.0 * DAY
DETAIL_S = 900.0
POINTS = 360  # at most in a panel: more would be a hatching


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < 1e11 else None


def first_of(oldest: float | None, now: float) -> int:
    """The range of a page without one: a day, or the shortest that holds all there is."""
    return next((length for length, _ in LASTS if oldest is not None and now - oldest <= length), FIRST)


def range_of(query: Any, now: float, shortest_s: float = SHORTEST_S, first: int = FIRST) -> tuple[float, float, int | None]:
    """From, to, and the length that follows now, if the range is one of those."""
    t_from, t_to = _number(query.get("from", "")), _number(query.get("to", ""))
    if t_from is not None and t_to is not None and t_from < t_to:
        middle, half = (t_from + t_to) / 2, min(max(t_to - t_from, shortest_s), LONGEST_S) / 2
        return middle - half, middle + half, None
    last = int(_number(query.get("last", "")) or first)
    last = last if last in dict(LASTS) else first
    return now - last, now, last


def zone() -> ZoneInfo:
    return ZoneInfo(timezone.get_current_timezone_name())


def _untold(state: State | None) -> str:
    """Why nothing of its work is ever told by a server that answers; "" where something is."""
    if state is None or state["health"]["state"] != "up" or state["figures"].get("gen_tps") is not None:
        return ""
    return str((state.get("missing") or {}).get("slots") or "")


@require_safe
@csp_override(CHARTS)
def show(request: HttpRequest, pk: int) -> HttpResponse:
    server = get_object_or_404(Server, pk=pk)
    now = time.time()
    t_from, t_to, last = range_of(request.GET, now, first=min(DAY, first_of(store.oldest(pk), now)))
    found = store.read(pk, t_from, t_to, round((t_to - t_from) / POINTS))
    said = charts.readouts(found, zone())
    drawn = [(panel, charts.panel_figure(panel, found, t_from, t_to, zone(), said)) for panel in charts.PANELS]
    state = selectors.live_state(pk)
    api = f"{get_script_prefix()}api/servers/{pk}/history?from={t_from:.0f}&to={t_to:.0f}"
    context = server_context(request, server, state, now) | {
        "panels": [{"panel": panel, "id": f"fig-{panel.key}", "figure": figure} for panel, figure in drawn if _known(figure)],
        "unknown": [panel.title for panel, figure in drawn if not _known(figure)],
        "any": bool(found["points"]),
        "untold": _untold(state),
        "range": charts.span_words(t_from, t_to, zone()),
        "zone": zone().key,
        "last": last,
        "lasts": LASTS,
        "step": _step_words(found["step_s"]),
        "earlier": _query(t_from - (t_to - t_from), t_from),
        "later": _query(t_to, t_to + (t_to - t_from)) if t_to < now - 1 else "",
        "out": _query(t_from - (t_to - t_from) / 2, min(t_to + (t_to - t_from) / 2, now)),
        "api": api,
        "detail": _detail(pk, t_from, t_to, now),
        "marks": found["marks"],
        "runs": found["runs"],
    }
    return render(request, "servers/history.html", context)


def _known(figure: Figure) -> bool:
    return any(value is not None for trace in figure["data"] for value in trace["y"])


def _query(t_from: float, t_to: float) -> str:
    return f"?from={t_from:.0f}&to={t_to:.0f}"


def _detail(pk: int, t_from: float, t_to: float, now: float) -> str:
    """The address of the same time at full detail, while that is kept."""
    if t_to < now - DETAIL_S or t_to - t_from > DETAIL_S:
        return ""
    return f"{reverse('server', args=[pk])}?from={t_from:.3f}&to={min(t_to, now):.3f}"


def _step_words(step_s: int) -> str:
    return f"{step_s // DAY} d" if step_s >= DAY else f"{step_s // HOUR} h" if step_s >= HOUR else f"{step_s // 60} min"


@require_safe
def runs(request: HttpRequest, pk: int) -> JsonResponse:
    """The experiment runs that touched a range, with their blocks: what the lanes show as regions."""
    get_object_or_404(Server, pk=pk)
    t_from, t_to, _ = range_of(request.GET, time.time(), 0.0)
    blocks = experiments.blocks_between(pk, t_from, t_to)
    return JsonResponse({"runs": [_run(run, blocks.get(run["id"], [])) for run in experiments.runs_between(pk, t_from, t_to)]})


def _run(run: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    arms = dict(zip("AB", experiments.arm_labels(experiments.get_run(run["id"])), strict=True))
    named = [block | {"text": f"{block['index']} {block['arm']}: {arms.get(block['arm'], '')}"} for block in blocks]
    return run | {"url": reverse("run", args=[run["id"]]), "blocks": named}
