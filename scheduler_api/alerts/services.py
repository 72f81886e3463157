"""What people do with alerts: acknowledge, silence, keep rules and recipients. Who may is checked by the pages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from scheduler_api.alerts import addresses
from scheduler_api.alerts.models import Alert, Channel, Recipient, Rule, Silence
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.models import Server

LONGEST_SILENCE = timedelta(days=30)


def acknowledge(alert: Alert, by: User) -> bool:
    """False when somebody had already."""
    return bool(
        Alert.objects.filter(pk=alert.pk, acknowledged_at=None).update(
            acknowledged_by=by, acknowledged_name=by.get_username(), acknowledged_at=timezone.now()
        )
    )


def silence(rule: Rule | None, server: Server | None, lasts: timedelta, by: User, reason: str) -> Silence:
    """Raises RegistrationRefused."""
    if not reason.strip():
        raise RegistrationRefused("Say why, for those who come after.", "reason")
    if not timedelta(0) < lasts <= LONGEST_SILENCE:
        raise RegistrationRefused("A silence lasts for at most 30 days.", "minutes")
    return Silence.objects.create(
        rule=rule, server=server, until=timezone.now() + lasts, by=by, by_name=by.get_username(), reason=reason.strip()[:300]
    )


def end_silence(silence: Silence) -> None:
    Silence.objects.filter(pk=silence.pk, until__gt=timezone.now()).update(until=timezone.now())


def keep_rule(rule: Rule, recipients: Iterable[Recipient]) -> Rule:
    """Raises RegistrationRefused when there is one of its kind for that server already."""
    try:
        with transaction.atomic():
            rule.save()
    except IntegrityError:
        where = rule.server.name if rule.server is not None else "all servers"
        raise RegistrationRefused(f"There is a rule of this kind for {where} already.", "server") from None
    rule.recipients.set(recipients)
    return rule


def keep_recipient(recipient: Recipient, address: str, secret: str | None) -> Recipient:
    """`address` "" and `secret` None keep what there is; neither is ever shown. A secret belongs to one origin: another one needs
    it given again. Raises RegistrationRefused."""
    if recipient.channel == Channel.EMAIL:
        if address:
            recipient.address = addresses.clean_email(address)
        recipient.secret = ""
    else:
        before = recipient.address
        if address:
            recipient.address = addresses.clean_webhook(address)
            addresses.check(recipient.address)
        if before and addresses.origin(before) != addresses.origin(recipient.address):
            recipient.secret = ""
        if secret is not None:
            recipient.secret = secret
    if not recipient.address:
        raise RegistrationRefused("Give the address.", "address")
    try:
        with transaction.atomic():
            recipient.save()
    except IntegrityError:
        raise RegistrationRefused(f"Another recipient is already called {recipient.name}.", "name") from None
    return recipient
