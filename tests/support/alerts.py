"""Rules and alerts for tests: a flushed database has none of the rules that the migration made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from scheduler_api.alerts.kinds import DEFINITIONS, Kind
from scheduler_api.alerts.models import Alert, Rule
from scheduler_api.models import Server


def rule(kind: Kind, server: Server | None = None, **given: Any) -> Rule:
    """The rule of a kind with its default values, or those given."""
    made = DEFINITIONS[kind]
    values = {"threshold_s": made.threshold_s, "for_s": made.for_s, "clear_s": made.clear_s, "severity": made.severity}
    return Rule.objects.update_or_create(kind=kind, server=server, defaults=values | given)[0]


def alert(of: Rule, server: Server | None, *, ago_s: float = 60.0, closed: bool = False, **given: Any) -> Alert:
    began = timezone.now() - timedelta(seconds=ago_s)
    values: dict[str, Any] = {
        "kind": of.kind,
        "severity": of.severity,
        "began_at": began,
        "opened_at": began + timedelta(seconds=of.for_s),
        "last_seen_at": timezone.now(),
        "closed_at": timezone.now() - timedelta(seconds=ago_s / 2) if closed else None,
        "text": "Slot 1 (chat-warm) is generating and has not moved for 2 min.",
        "peak_s": 130.0,
        "limit_s": of.threshold_s,
    }
    return Alert.objects.create(rule=of, server=server, **values | given)
