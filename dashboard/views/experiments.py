"""Experiments: the list, the form that starts one, a run while it goes and its result."""

from __future__ import annotations

import csv
import io

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST, require_safe

from dashboard.roles import Role, at_least


@require_safe
def experiments(request: HttpRequest) -> HttpResponse:
    from workers import selectors

    return render(request, "experiments/list.html", {"runs": selectors.list_runs()})


@at_least(Role.OPERATOR)
def experiment_new(request: HttpRequest) -> HttpResponse:
    return render(request, "experiments/new.html", {})


@require_GET
def run(request: HttpRequest, pk: int) -> HttpResponse:
    from workers.models import Run

    return render(request, "experiments/run.html", {"run": get_object_or_404(Run, pk=pk)})


@require_POST
@at_least(Role.OPERATOR)
def run_stop(request: HttpRequest, pk: int) -> HttpResponse:
    from workers.experiments import request_stop
    from workers.models import Run

    request_stop(get_object_or_404(Run, pk=pk), request.user)
    return redirect("run", pk=pk)


@require_safe
def run_csv(request: HttpRequest, pk: int) -> HttpResponse:
    from workers import selectors
    from workers.models import Run

    rows = selectors.sample_rows(get_object_or_404(Run, pk=pk))
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return HttpResponse(out.getvalue(), content_type="text/csv")
