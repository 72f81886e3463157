"""Rules, the alerts that they opened, silences, and who was told. Times are the console's."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from scheduler_api.alerts.kinds import DEFINITIONS, SEVERITIES, Kind, Spec
from scheduler_api.sealing import SealedField

KINDS = [(kind.value, DEFINITIONS[kind].label) for kind in Kind]


class Channel(models.TextChoices):
    WEBHOOK = "webhook", "Webhook"
    EMAIL = "email", "E-mail"


class Recipient(models.Model):
    """Where alerts go. `address` is a webhook's URL, which may be a secret in itself, or an e-mail address. `secret` signs a
    webhook's body; neither is shown again."""

    name = models.CharField(max_length=80, unique=True)
    channel = models.CharField(max_length=10, choices=Channel.choices)
    address = SealedField()
    secret = SealedField(blank=True, default="")
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Rule(models.Model):
    """`server` null: all servers that have no rule of this kind of their own."""

    kind = models.CharField(max_length=20, choices=KINDS)
    server = models.ForeignKey(
        "scheduler_api.Server", null=True, blank=True, on_delete=models.CASCADE, related_name="alert_rules"
    )
    threshold_s = models.FloatField(default=0.0)
    for_s = models.FloatField(default=0.0)
    clear_s = models.FloatField(default=10.0)
    enabled = models.BooleanField(default=True)
    severity = models.CharField(max_length=10, choices=SEVERITIES, default="warning")
    recipients = models.ManyToManyField(Recipient, blank=True, related_name="rules")

    class Meta:
        ordering = ("kind", "server__name", "pk")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "server"], name="one_alert_rule_per_kind_and_server"),
            models.UniqueConstraint(fields=["kind"], condition=Q(server=None), name="one_alert_rule_per_kind_for_all"),
        ]

    def __str__(self) -> str:
        return self.get_kind_display()

    def spec(self) -> Spec:
        return Spec(self.pk, Kind(self.kind), self.server_id, self.threshold_s, self.for_s, self.clear_s)


class Alert(models.Model):
    """`began_at`: what was found began, as far as that was seen; `opened_at`: it had held for long enough. `key` tells it from
    others of its rule and server. `rule` and `server` may be gone; the words stay. `announced_at`: recipients were told, or there
    was none to tell; `closing_told_at`: of the end too."""

    rule = models.ForeignKey(Rule, null=True, on_delete=models.SET_NULL, related_name="alerts")
    server = models.ForeignKey("scheduler_api.Server", null=True, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=20, choices=KINDS)
    severity = models.CharField(max_length=10, choices=SEVERITIES)
    key = models.CharField(max_length=200, blank=True, default="")
    slot = models.IntegerField(null=True)
    client = models.CharField(max_length=200, blank=True, default="")
    task = models.BigIntegerField(null=True)
    began_at = models.DateTimeField()
    opened_at = models.DateTimeField(db_index=True)
    last_seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, db_index=True)
    closed_why = models.CharField(max_length=200, blank=True, default="")
    text = models.CharField(max_length=500)
    peak_s = models.FloatField(default=0.0)
    limit_s = models.FloatField(default=0.0)
    acknowledged_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    acknowledged_name = models.CharField(max_length=150, blank=True, default="")
    acknowledged_at = models.DateTimeField(null=True)
    announced_at = models.DateTimeField(null=True)
    closing_told_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-opened_at", "-pk")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["rule", "server", "key"],
                condition=Q(closed_at=None),
                name="one_open_alert_per_rule_server_and_key",
            ),
            models.UniqueConstraint(
                fields=["rule", "key"], condition=Q(closed_at=None, server=None), name="one_open_alert_per_rule_and_key"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.text}"

    @property
    def lasted_s(self) -> float:
        return float(((self.closed_at or timezone.now()) - self.began_at).total_seconds())


class Silence(models.Model):
    """Until `until` nobody is told of alerts of this rule, on this server; null stands for any."""

    rule = models.ForeignKey(Rule, null=True, blank=True, on_delete=models.CASCADE, related_name="silences")
    server = models.ForeignKey("scheduler_api.Server", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    since = models.DateTimeField(default=timezone.now)
    until = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150)
    reason = models.CharField(max_length=300)

    class Meta:
        ordering = ("until", "pk")

    def __str__(self) -> str:
        return f"until {self.until}: {self.reason}"

    def covers(self, alert: Alert) -> bool:
        return self.rule_id in (None, alert.rule_id) and self.server_id in (None, alert.server_id)


class Outcome(models.TextChoices):
    PENDING = "pending", "To be sent"
    SENDING = "sending", "Being sent"
    SENT = "sent", "Sent"
    FAILED = "failed", "Failed"
    UNCERTAIN = "uncertain", "Uncertain"


class Delivery(models.Model):
    """One message to one recipient about one transition: made once, so never sent twice. `uncertain`: it may have arrived."""

    class Transition(models.TextChoices):
        OPENED = "opened", "Opened"
        CLOSED = "closed", "Closed"
        TEST = "test", "Test"

    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="deliveries")
    transition = models.CharField(max_length=10, choices=Transition.choices)
    recipient = models.ForeignKey(Recipient, null=True, on_delete=models.SET_NULL, related_name="deliveries")
    recipient_name = models.CharField(max_length=80)
    channel = models.CharField(max_length=10, choices=Channel.choices)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(default=timezone.now)
    claimed_at = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at", "-pk")
        indexes: ClassVar = [models.Index(fields=["outcome", "next_at"], name="delivery_outcome_next")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["alert", "transition", "recipient"], name="one_delivery_per_alert_transition_recipient"
            )
        ]

    def __str__(self) -> str:
        return f"{self.transition} to {self.recipient_name}: {self.outcome}"
