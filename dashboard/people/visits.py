"""Keeps the list of sessions: where each was last seen, to the minute, so that polling pages do not write all the time."""

from __future__ import annotations

import time
from collections.abc import Callable

from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

EVERY_S = 60.0
MOST_KEPT = 10_000


class VisitMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._noted: dict[str, float] = {}

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        key = request.session.session_key
        # What ended the session, or never had one, must not bring it back.
        if key and isinstance(request.user, User) and request.user.is_authenticated and self._is_due(key):
            UserSession.objects.create_from_request(request)
        return response

    def _is_due(self, key: str) -> bool:
        now = time.monotonic()
        if now - self._noted.get(key, -EVERY_S) < EVERY_S:
            return False
        if len(self._noted) >= MOST_KEPT:
            self._noted.clear()
        self._noted[key] = now
        return True
