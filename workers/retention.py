"""What is dropped once it is old enough, and when that is: docs/deploy.md, "What is kept for how long".

Each thing is one rule here, or one that a layer above adds. The audit trail and the changes of policies have none: they are kept
for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.alerts import outbox
from scheduler_api.history.rollups import KEPT_S
from scheduler_api.models import Rollup
from scheduler_api.policies.models import WindowFiring
from workers.models import ACTIVE, Run, RunState

log = logging.getLogger(__name__)

#: Runs dropped in one round, each in a transaction of its own: nobody waits long for the database.
RUNS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Rule:
    """`drop` is given the moment before which things are old, and tells how many they were. `days` 0 keeps them for good."""

    what: str
    days: Callable[[], float]
    drop: Callable[[datetime], int]


def drop_old(now: datetime | None = None) -> dict[str, int]:
    """One round of every rule: how many of each were dropped. One that fails keeps none of the others from its work."""
    now = now or timezone.now()
    dropped = {}
    for rule in (*OWN, *added):
        if days := rule.days():
            try:
                dropped[rule.what] = rule.drop(now - timedelta(days=days))
            except DatabaseError:
                log.warning("Old %s could not be dropped", rule.what, exc_info=True)
    if told := ", ".join(f"{count} {what}" for what, count in dropped.items() if count):
        log.info("Dropped what was old: %s", told)
    return dropped


def _runs(before: datetime) -> int:
    """With their blocks, samples, log and share links. A run that was read from a file is as old as its reading."""
    over = Run.objects.exclude(state__in=(RunState.WAITING, *ACTIVE)).filter(finished_at__lt=before, created_at__lt=before)
    rows = list(over.select_related("server").order_by("pk")[:RUNS_AT_ONCE])
    for run in rows:
        with transaction.atomic():
            why = f"Runs are kept for {settings.KEEP_RUNS_DAYS} days."
            audit.record("run.dropped", run.scenario, server=run.server, ref=f"run {run.pk}", actor_name="retention", why=why)
            run.delete()
    return len(rows)


def _rollups(before: datetime) -> int:
    """Of every server: the observer sees to those alone that it watches."""
    return Rollup.objects.filter(t__lt=int(before.timestamp())).delete()[0]


def _firings(before: datetime) -> int:
    return WindowFiring.objects.filter(due__lt=before).delete()[0]


OWN = (
    Rule("runs", lambda: settings.KEEP_RUNS_DAYS, _runs),
    Rule("alerts", lambda: settings.KEEP_ALERTS_DAYS, outbox.drop_ended),
    Rule("silences", lambda: settings.KEEP_ALERTS_DAYS, outbox.drop_silences),
    Rule("firings of windows", lambda: settings.KEEP_ALERTS_DAYS, _firings),
    Rule("sums of minutes", lambda: KEPT_S / 86400, _rollups),
)
#: Told by the layers above.
added: list[Rule] = []
