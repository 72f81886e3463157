"""Alerts in the frame and above a server's page."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import timezone

from dashboard import present, roles
from scheduler_api.alerts import selectors
from scheduler_api.alerts.models import Alert

register = template.Library()

#: severity -> mark of the sprite, tone
MARKS = {"critical": ("stuck", "is-bad"), "warning": ("warn", "is-warn"), "info": ("info", "q")}
_PLAIN = ("info", "q")


@register.simple_tag(takes_context=True)
def alert_counts(context: Any) -> dict[str, int]:
    total, critical = selectors.counts(roles.visible(context["request"].user))
    return {"total": total, "critical": critical}


@register.simple_tag
def alerts_of(server_id: int) -> list[selectors.Shown]:
    return selectors.open_of(server_id)


@register.filter
def severity_mark(alert: Alert) -> str:
    return MARKS.get(alert.severity, _PLAIN)[0]


@register.filter
def severity_tone(alert: Alert) -> str:
    return MARKS.get(alert.severity, _PLAIN)[1] if alert.closed_at is None else "q"


@register.filter
def lasted(alert: Alert) -> str:
    """For how long it held, or holds."""
    return present.duration(((alert.closed_at or timezone.now()) - alert.began_at).total_seconds())


@register.filter
def seconds(value: float | None) -> str:
    return present.duration(value)


@register.filter
def setting(value: float) -> str:
    """A rule's time: "at once", "2 s", "1 min 30 s"."""
    if value == 0:
        return "at once"
    return present.duration(value) if value >= 60 else f"{value:g} s"


@register.filter
def stale(alert: Alert, limit_s: int = 20) -> bool:
    """Whether what opened it was not found for a while: nobody knows whether it still holds, or it is about to close."""
    return alert.closed_at is None and (timezone.now() - alert.last_seen_at).total_seconds() > limit_s


@register.simple_tag
def silence_words(silence: Any) -> str:
    """What a silence covers."""
    rule = silence.rule.get_kind_display() if silence.rule is not None else "every rule"
    return f"{rule} on {silence.server.name if silence.server is not None else 'every server'}"
