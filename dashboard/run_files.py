"""A run as a file: JSON that comes back as it was, CSV of its requests, and a report that needs no console."""

from __future__ import annotations

from collections.abc import Callable

from django.template.loader import render_to_string

from dashboard.report import report_of
from workers import selectors
from workers.exporting.document import as_csv, as_json
from workers.models import Run


def as_html(run: Run) -> str:
    """The report. It stands alone, so nothing of the console's frame is in it."""
    return render_to_string("experiments/report.html", report_of(run, selectors.results(run)))


#: What a file's ending stands for: its content type, and what writes it.
FORMS: dict[str, tuple[str, Callable[[Run], str | bytes]]] = {
    "json": ("application/json", as_json),
    "csv": ("text/csv; charset=utf-8", as_csv),
    "html": ("text/html; charset=utf-8", as_html),
}
