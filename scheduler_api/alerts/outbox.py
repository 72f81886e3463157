"""Which messages there are to send, and what became of each. A message is a row, made once for an alert, a transition and a
recipient; it is claimed before it is sent, and sent again only when the recipient certainly did not take it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from scheduler_api.alerts.models import Alert, Delivery, Outcome, Recipient, Silence

#: Pauses before the second, third … attempt; after the last one it has failed.
PAUSES_S = (5.0, 20.0, 60.0, 300.0, 900.0)
#: Sending takes at most some seconds: a message claimed longer ago was claimed by a worker that died.
CLAIM_S = 120.0
#: Alerts that ended longer ago are told to nobody: the page has them.
TOLD_WITHIN = timedelta(hours=1)
DIED = "the worker ended while it sent; the message may have arrived and is not sent again"
NO_RECIPIENT = "its recipient was removed or switched off"


def silences(now: datetime) -> list[Silence]:
    return list(Silence.objects.filter(until__gt=now, since__lte=now))


def is_silenced(alert: Alert, among: Iterable[Silence]) -> bool:
    return any(silence.covers(alert) for silence in among)


def announce(now: datetime | None = None) -> int:
    """Makes the messages of alerts that opened and of those that ended. Silenced ones wait: an alert that is still open at the
    end of its silence is told then. Returns how many were made."""
    now = now or timezone.now()
    kept = silences(now)
    made = 0
    untold = Q(announced_at=None, closed_at=None) | Q(closing_told_at=None, closed_at__gt=now - TOLD_WITHIN)
    for alert in Alert.objects.filter(untold).order_by("opened_at"):
        if is_silenced(alert, kept):
            continue
        transition = Delivery.Transition.OPENED if alert.closed_at is None else Delivery.Transition.CLOSED
        made += _message(alert, transition, now)
    return made


def _message(alert: Alert, transition: str, now: datetime) -> int:
    field = "announced_at" if transition == Delivery.Transition.OPENED else "closing_told_at"
    with transaction.atomic():
        if not Alert.objects.filter(pk=alert.pk, **{field: None}).update(**{field: now}):
            return 0
        recipients = Recipient.objects.filter(rules=alert.rule_id, enabled=True) if alert.rule_id else Recipient.objects.none()
        rows = [_row(alert, transition, each) for each in recipients]
        Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def _row(alert: Alert | None, transition: str, recipient: Recipient) -> Delivery:
    return Delivery(
        alert=alert, transition=transition, recipient=recipient, recipient_name=recipient.name, channel=recipient.channel
    )


def test(recipient: Recipient) -> Delivery:
    """A message that says it is a test."""
    row = _row(None, Delivery.Transition.TEST, recipient)
    row.save()
    return row


def due(now: datetime | None = None, limit: int = 100) -> list[int]:
    """Ids of messages to send now, oldest first."""
    rows = Delivery.objects.filter(outcome=Outcome.PENDING, next_at__lte=now or timezone.now())
    return list(rows.order_by("next_at", "pk").values_list("pk", flat=True)[:limit])


def claim(pk: int, now: datetime | None = None) -> Delivery | None:
    """The message, for whoever asks first; None for everybody else."""
    now = now or timezone.now()
    claimed = Delivery.objects.filter(pk=pk, outcome=Outcome.PENDING, next_at__lte=now)
    if not claimed.update(outcome=Outcome.SENDING, claimed_at=now):
        return None
    Delivery.objects.filter(pk=pk).update(attempts=F("attempts") + 1)
    return Delivery.objects.select_related("alert__server", "alert__rule", "recipient").get(pk=pk)


def sent(delivery: Delivery) -> None:
    _done(delivery, Outcome.SENT, "")


def uncertain(delivery: Delivery, error: str) -> None:
    _done(delivery, Outcome.UNCERTAIN, error)


def failed(delivery: Delivery, error: str, *, again: bool, now: datetime | None = None) -> None:
    """`again`: the recipient did not take it and may take it later."""
    now = now or timezone.now()
    if not again or delivery.attempts > len(PAUSES_S):
        _done(delivery, Outcome.FAILED, error)
        return
    pause = timedelta(seconds=PAUSES_S[delivery.attempts - 1])
    row = Delivery.objects.filter(pk=delivery.pk, outcome=Outcome.SENDING)
    row.update(outcome=Outcome.PENDING, error=error[:300], next_at=now + pause)


def _done(delivery: Delivery, outcome: str, error: str) -> None:
    row = Delivery.objects.filter(pk=delivery.pk, outcome=Outcome.SENDING)
    row.update(outcome=outcome, error=error[:300], done_at=timezone.now())


def drop_ended(before: datetime) -> int:
    """Drops alerts, with their messages, and test messages that ended before then, some hundreds at a time. How many alerts."""
    old = list(Alert.objects.filter(closed_at__lt=before).values_list("pk", flat=True)[:500])
    Alert.objects.filter(pk__in=old).delete()
    Delivery.objects.filter(alert=None, created_at__lt=before).delete()
    return len(old)


def drop_silences(before: datetime) -> int:
    """Silences that ended before then; the audit trail goes on telling of them."""
    return Silence.objects.filter(until__lt=before).delete()[0]


def drop_unsent(why: str) -> int:
    """Messages that are not to be sent any more, whatever they were to say. How many."""
    unsent = Delivery.objects.filter(outcome__in=(Outcome.PENDING, Outcome.SENDING))
    return unsent.update(outcome=Outcome.FAILED, error=why[:300], done_at=timezone.now())


def bury(now: datetime | None = None) -> int:
    """Messages whose worker died while it sent them."""
    now = now or timezone.now()
    lost = Delivery.objects.filter(outcome=Outcome.SENDING, claimed_at__lt=now - timedelta(seconds=CLAIM_S))
    return lost.update(outcome=Outcome.UNCERTAIN, error=DIED, done_at=now)
