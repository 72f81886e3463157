"""A run as a file: JSON that comes back as it was, CSV of its requests, and a report that needs no console."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from dashboard.report import report_of
from workers import selectors
from workers.errors import ExportRefused
from workers.exporting.document import as_csv, as_json, file_name
from workers.models import Run


def as_html(run: Run) -> str:
    """The report. It stands alone, so nothing of the console's frame is in it."""
    return render_to_string("experiments/report.html", report_of(run, selectors.results(run)))


FORMS: dict[str, tuple[str, Callable[[Run], str | bytes]]] = {
    "json": ("application/json", as_json),
    "csv": ("text/csv; charset=utf-8", as_csv),
    "html": ("text/html; charset=utf-8", as_html),
}


@require_safe
def run_export(request: HttpRequest, pk: int, form: str) -> HttpResponse:
    """A download, never a page: a report opened from the console would be under the console's own policy of content."""
    try:
        run = selectors.get_run(pk)
    except Run.DoesNotExist:
        raise Http404(f"There is no run {pk}.") from None
    kind, write = FORMS[form]
    try:
        content = write(run)
    except ExportRefused as refused:
        return HttpResponse(refused.text, status=409, content_type="text/plain; charset=utf-8")
    headers = {"Content-Disposition": f'attachment; filename="{file_name(run, form)}"', "X-Content-Type-Options": "nosniff"}
    return HttpResponse(content, content_type=kind, headers=headers)
