"""Rules and alerts in the database, as the evaluation reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Q

from scheduler_api.alerts.kinds import NOT_OF_STATE, Kind, Spec
from scheduler_api.alerts.models import Alert, Rule
from scheduler_api.alerts.tracking import Closed, Key, Opened, Track, Transition

SWITCHED_OFF = "its rule was switched off or replaced, or its server is watched no more"


def when(t: float) -> datetime:
    return datetime.fromtimestamp(t, UTC)


def rules() -> list[Spec]:
    return [rule.spec() for rule in Rule.objects.filter(enabled=True)]


def open_alerts(*, of_observer: bool) -> list[Alert]:
    """Those whose rule there still is: of the kind that the worker looks at, or of those that live states tell of."""
    chosen = Q(kind=Kind.OBSERVER_LOST) if of_observer else ~Q(kind__in=NOT_OF_STATE)
    return list(Alert.objects.filter(chosen, closed_at=None, rule__isnull=False))


def write(transitions: Iterable[Transition]) -> None:
    """In one transaction. Doing it again changes nothing. Raises DatabaseError."""
    with transaction.atomic():
        for each in transitions:
            if isinstance(each, Opened):
                _open(each)
            else:
                _close(each)


def _same(key: Key) -> Q:
    rule, server, about = key
    return Q(rule_id=rule, server_id=server, key=about[:200], closed_at=None)


def _open(opened: Opened) -> None:
    rule_id, server_id, key = opened.key
    rule = Rule.objects.filter(pk=rule_id).first()
    if rule is None or Alert.objects.filter(_same(opened.key)).exists():
        return
    finding = opened.finding
    Alert.objects.create(
        rule=rule,
        server_id=server_id,
        kind=rule.kind,
        severity=rule.severity,
        key=key[:200],
        slot=finding.slot,
        client=finding.client[:200],
        task=finding.task,
        began_at=when(opened.began),
        opened_at=when(opened.at),
        last_seen_at=when(opened.at),
        text=finding.text[:500],
        peak_s=finding.value_s,
        limit_s=finding.limit_s,
    )


def _close(closed: Closed) -> None:
    Alert.objects.filter(_same(closed.key)).update(closed_at=when(closed.at), closed_why=closed.why, peak_s=closed.peak_s)


def touch(tracks: Mapping[Key, Track]) -> None:
    """What open alerts look like now. Raises DatabaseError."""
    with transaction.atomic():
        for key, track in tracks.items():
            if track.finding is not None:
                Alert.objects.filter(_same(key)).update(
                    last_seen_at=when(track.seen_at), peak_s=track.peak_s, text=track.finding.text[:500]
                )


def close_orphans(now: float) -> int:
    """Alerts whose rule is gone are nobody's to close: done here. How many they were."""
    return Alert.objects.filter(rule=None, closed_at=None).update(closed_at=when(now), closed_why=SWITCHED_OFF)
