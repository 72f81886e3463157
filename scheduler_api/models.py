"""The registry of inference servers and the audit trail of policy changes."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ServerKind(models.TextChoices):
    ENGINE = "engine", "Slotboard engine"
    LLAMA_SERVER = "llama_server", "llama-server"
    VLLM = "vllm", "vLLM"


class Server(models.Model):
    """An inference server that an admin registered. `api_key` is sent to the origin of `base_url` alone and never shown again.

    `quiet` leaves an idle server alone, at the price of seeing late that it became busy: asking some servers for their slots
    keeps them from going to sleep.
    """

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=20, choices=ServerKind.choices)
    base_url = models.CharField(max_length=300)
    api_key = models.CharField(max_length=300, blank=True, default="")
    enabled = models.BooleanField(default=True)
    quiet = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class PolicyOutcome(models.TextChoices):
    APPLIED = "applied", "Applied"
    REFUSED = "refused", "Refused"
    FAILED = "failed", "Failed"


class PolicyChange(models.Model):
    """One attempt to switch a server's policy, whatever came of it. Rows are written once and never edited.

    `old` is the policy requested before, `changes` the fields asked for, `new` the policy in effect afterwards; `new` is
    empty unless applied. A server that has rows here cannot be deleted, only disabled.
    """

    server = models.ForeignKey(Server, on_delete=models.PROTECT, related_name="policy_changes")
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    actor_name = models.CharField(max_length=150)
    reason = models.CharField(max_length=500, blank=True, default="")
    old = models.JSONField(default=dict)
    changes = models.JSONField(default=dict)
    new = models.JSONField(default=dict)
    version = models.BigIntegerField(null=True, blank=True)
    effective_from_iteration = models.BigIntegerField(null=True, blank=True)
    ttl_s = models.FloatField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=PolicyOutcome.choices)
    error = models.TextField(blank=True, default="")

    class Meta:
        ordering = ("-at", "-pk")
        indexes = (models.Index(fields=["server", "-at"], name="policychange_server_at"),)

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.changes} on {self.server_id}, {self.outcome}"
