"""What is kept of people's comings and goings, and for how long."""

from __future__ import annotations

from datetime import datetime

from allauth.usersessions.models import UserSession
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from workers.retention import Rule


def _logins(before: datetime) -> int:
    """Who logged in or failed to, from where. Lock-outs are far shorter than any time that these are kept."""
    return sum(
        model.objects.filter(attempt_time__lt=before).delete()[0] for model in (AccessLog, AccessAttempt, AccessFailureLog)
    )


def _sessions(_: datetime) -> int:
    """Those that have run out, whenever that was, and what was noted about them."""
    count = int(Session.objects.filter(expire_date__lt=timezone.now()).delete()[0])
    UserSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
    return count


RULES = (
    Rule("logins", lambda: settings.KEEP_LOGINS_DAYS, _logins),
    Rule("sessions", lambda: settings.SESSION_COOKIE_AGE / 86400, _sessions),
)
