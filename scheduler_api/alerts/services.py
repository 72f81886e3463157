"""What people do with alerts: acknowledge, silence, keep rules and recipients. Who may is checked by the pages.

Each of it stands in the audit trail; addresses of webhooks up to their host, secrets not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from scheduler_api import audit
from scheduler_api.alerts import addresses
from scheduler_api.alerts.models import Alert, Channel, Recipient, Rule, Silence
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.models import Server
from scheduler_api.targets import origin_of

LONGEST_SILENCE = timedelta(days=30)


def acknowledge(alert: Alert, by: User) -> bool:
    """False when somebody had already."""
    with transaction.atomic():
        done = Alert.objects.filter(pk=alert.pk, acknowledged_at=None).update(
            acknowledged_by=by, acknowledged_name=by.get_username(), acknowledged_at=timezone.now()
        )
        if done:
            audit.record("alert.acknowledged", str(alert), server=alert.server, actor=by, ref=f"alert {alert.pk}")
    return bool(done)


def silence(rule: Rule | None, server: Server | None, lasts: timedelta, by: User, reason: str) -> Silence:
    """Raises RegistrationRefused."""
    if not reason.strip():
        raise RegistrationRefused("Say why, for those who come after.", "reason")
    if not timedelta(0) < lasts <= LONGEST_SILENCE:
        raise RegistrationRefused("A silence lasts for at most 30 days.", "minutes")
    with transaction.atomic():
        made = Silence.objects.create(
            rule=rule, server=server, until=timezone.now() + lasts, by=by, by_name=by.get_username(), reason=reason.strip()[:300]
        )
        audit.record(
            "silence.made", _covered(made), server=server, actor=by, after={"until": made.until.isoformat()}, why=made.reason
        )
    return made


def end_silence(silence: Silence) -> None:
    with transaction.atomic():
        if Silence.objects.filter(pk=silence.pk, until__gt=timezone.now()).update(until=timezone.now()):
            audit.record("silence.ended", _covered(silence), server=silence.server, before={"until": silence.until.isoformat()})


def _covered(silence: Silence) -> str:
    rule = silence.rule.get_kind_display() if silence.rule is not None else "every rule"
    return f"{rule} on {silence.server.name if silence.server is not None else 'every server'}"


def keep_rule(rule: Rule, recipients: Iterable[Recipient]) -> Rule:
    """Raises RegistrationRefused when there is one of its kind for that server already."""
    new = rule.pk is None
    before = None if new else _rule_words(Rule.objects.get(pk=rule.pk))
    try:
        with transaction.atomic():
            rule.save()
            rule.recipients.set(recipients)
            after = _rule_words(rule)
            if after != before:
                action = "rule.made" if new else "rule.changed"
                audit.record(action, _rule_name(rule), server=rule.server, before=before, after=after)
    except IntegrityError:
        where = rule.server.name if rule.server is not None else "all servers"
        raise RegistrationRefused(f"There is a rule of this kind for {where} already.", "server") from None
    return rule


def remove_rule(rule: Rule) -> None:
    """What it had opened is closed by the observer."""
    with transaction.atomic():
        audit.record("rule.removed", _rule_name(rule), server=rule.server, before=_rule_words(rule))
        rule.delete()


def _rule_name(rule: Rule) -> str:
    return f"{rule.get_kind_display()} for {rule.server.name if rule.server is not None else 'all servers'}"


def _rule_words(rule: Rule) -> dict[str, Any]:
    told = {name: getattr(rule, name) for name in ("threshold_s", "for_s", "clear_s", "enabled", "severity")}
    return told | {"recipients": sorted(rule.recipients.values_list("name", flat=True))}


def keep_recipient(recipient: Recipient, address: str, secret: str | None) -> Recipient:
    """`address` "" and `secret` None keep what there is; neither is ever shown. A secret belongs to one origin: another one needs
    it given again. Raises RegistrationRefused."""
    before = _recipient_words(Recipient.objects.get(pk=recipient.pk)) if recipient.pk is not None else None
    if recipient.channel == Channel.EMAIL:
        if address:
            recipient.address = addresses.clean_email(address)
        recipient.secret = ""
    else:
        old = recipient.address
        if address:
            recipient.address = addresses.clean_webhook(address)
            addresses.check(recipient.address)
        if old and origin_of(old) != origin_of(recipient.address):
            recipient.secret = ""
        if secret is not None:
            recipient.secret = secret
    if not recipient.address:
        raise RegistrationRefused("Give the address.", "address")
    try:
        with transaction.atomic():
            recipient.save()
            _record_recipient(recipient, before, moved=bool(address), secret_given=secret is not None)
    except IntegrityError:
        raise RegistrationRefused(f"Another recipient is already called {recipient.name}.", "name") from None
    return recipient


def remove_recipient(recipient: Recipient) -> None:
    with transaction.atomic():
        audit.record("recipient.removed", recipient.name, before=_recipient_words(recipient))
        recipient.delete()


def _record_recipient(recipient: Recipient, before: dict[str, Any] | None, *, moved: bool, secret_given: bool) -> None:
    """A new path at the same host, or a new secret, is told without being shown."""
    after = _recipient_words(recipient)
    given = {"address_given": True} if moved else {}
    given |= {"signing_given": True} if secret_given else {}
    if before is None or after != before or given:
        audit.record(
            "recipient.made" if before is None else "recipient.changed", recipient.name, before=before, after=after | given
        )


def _recipient_words(recipient: Recipient) -> dict[str, Any]:
    webhook = recipient.channel == Channel.WEBHOOK
    return {
        "name": recipient.name,
        "channel": recipient.channel,
        "to": addresses.origin(recipient.address) if webhook and recipient.address else recipient.address,
        "signed": bool(recipient.secret),
        "enabled": recipient.enabled,
    }
