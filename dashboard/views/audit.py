"""Who changed which policy, when, and why."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from scheduler_api import selectors


@require_safe
def changes(request: HttpRequest) -> HttpResponse:
    return render(request, "audit.html", {"changes": selectors.policy_changes()})
