"""Runs as downloads."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.run_files import FORMS
from workers import selectors
from workers.errors import ExportRefused
from workers.exporting.document import file_name
from workers.models import Run


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
