"""A run's file from another console, read back into this one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from dashboard import arms
from dashboard.roles import Role, at_least
from workers import selectors
from workers.errors import ImportRefused
from workers.exporting.importing import MOST_BYTES, import_run
from workers.models import Run

MOST_LISTED = 50


class Request(HttpRequest):
    user: User


@require_http_methods(["GET", "HEAD", "POST"])
@at_least(Role.OPERATOR)
def run_import(request: Request) -> HttpResponse:
    error = ""
    if request.method == "POST":
        try:
            run = import_run(_content(request), request.user)
        except ImportRefused as refused:
            error = str(refused)
        else:
            messages.success(request, f"Run {run.pk} is here now, as it was exported. Nothing acts on it.")
            return redirect("run", pk=run.pk)
    context = {"error": error, "imported": _imported(), "most": MOST_BYTES >> 20}
    return render(request, "experiments/import.html", context, status=422 if error else 200)


def _content(request: Request) -> bytes:
    """Of the file that was sent. Raises ImportRefused without one, and before reading one that is too large."""
    sent = request.FILES.get("file")
    if sent is None:
        raise ImportRefused("No file was chosen. Choose one that was exported from a result page as JSON.")
    if (sent.size or 0) > MOST_BYTES:
        raise ImportRefused(f"The file has {(sent.size or 0) >> 20} MB; at most {MOST_BYTES >> 20} MB are read.")
    return bytes(sent.read())


def _imported() -> list[dict[str, Any]]:
    """What is here already, newest first."""
    runs = Run.objects.select_related("created_by").filter(imported__isnull=False).order_by("-id")[:MOST_LISTED]
    return [{"run": run, "title": arms.title(*selectors.arm_labels(run))} for run in runs]
