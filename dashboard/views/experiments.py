"""Experiments: the list, a run while it goes and its result. `views.launch` starts them."""

from __future__ import annotations

import csv
import io
from typing import Any, cast

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.csp import CSP
from django.views.decorators.csp import csp_override
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from dashboard import live_run, run_list
from dashboard import roles as who
from dashboard.roles import Role, at_least
from dashboard.views import results as results_views
from dashboard.views.results import Request, run_or_404
from workers import experiments as services
from workers import selectors
from workers.models import Run

# Plotly writes styles into its own elements and saves images through blobs; nothing else does.
CHARTS_CSP: dict[str, list[str]] = {
    **cast("dict[str, list[str]]", settings.SECURE_CSP),
    "style-src": [CSP.SELF, CSP.UNSAFE_INLINE],
    "img-src": [CSP.SELF, "data:", "blob:"],
}


@require_safe
def experiments(request: Request) -> HttpResponse:
    visible = who.visible(request.user)
    filters = run_list.Filters.of(request.GET.dict())
    listed = run_list.page(run_list.find(filters, visible), request.GET.get("page", ""))
    count = listed.paginator.count
    running = run_list.find(filters, visible).filter(state__in=run_list.STATES["active"]).count()
    context = {
        "entries": [run_list.entry(run) for run in listed],
        "page": listed,
        "filters": filters,
        "choices": run_list.choices(visible),
        "states": run_list.STATE_WORDS,
        "active": any(run.active for run in listed),
        "total": f"{count} run{'s' if count != 1 else ''}" + (f", {running} not over" if running else "") if count else "",
        "may_run": who.may(request.user, Role.OPERATOR),
    }
    return render(request, "experiments/list.html#runs" if request.htmx else "experiments/list.html", context)


@require_safe
@csp_override(CHARTS_CSP)
def run(request: Request, pk: int) -> HttpResponse:
    shown = run_or_404(pk)
    if request.htmx and request.htmx.target == "progress":
        if not shown.active:
            return HttpResponseClientRefresh()
        return render(request, "experiments/_polled.html", _live_context(request, shown))
    context = _live_context(request, shown) if shown.active else results_views.result_context(request, shown)
    return render(request, "experiments/run.html", context)


def _live_context(request: Request, shown: Run) -> dict[str, Any]:
    return {
        **results_views.frame_of(request, shown, live_run.found_of(shown)),
        **live_run.context(shown, timezone.now()),
    }


@require_POST
@at_least(Role.OPERATOR)
def run_stop(request: Request, pk: int) -> HttpResponse:
    services.request_stop(run_or_404(pk), request.user)
    if not request.htmx:
        return redirect("run", pk=pk)
    shown = run_or_404(pk)
    if not shown.active:
        return HttpResponseClientRefresh()
    return render(request, "experiments/_polled.html", _live_context(request, shown))


@require_safe
def run_csv(request: Request, pk: int) -> HttpResponse:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(selectors.sample_rows(run_or_404(pk)))
    name = f"slotboard-run-{pk}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)
