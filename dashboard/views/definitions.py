"""What every figure means."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard.definitions import definitions


@require_safe
def show(request: HttpRequest) -> HttpResponse:
    return render(request, "definitions.html", {"definitions": definitions()})
