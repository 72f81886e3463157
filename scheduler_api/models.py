"""The registry of inference servers and the audit trail of policy changes."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scheduler_api.sealing import SealedField


class ServerKind(models.TextChoices):
    ENGINE = "engine", "Slotboard engine"
    LLAMA_SERVER = "llama_server", "llama-server"
    VLLM = "vllm", "vLLM"
    OPENAI = "openai", "OpenAI-compatible server"


class Server(models.Model):
    """An inference server that an admin registered. `api_key` is sent to the origin of `base_url` alone and never shown again.

    `quiet` leaves an idle server alone, at the price of seeing late that it became busy: asking some servers for their slots
    keeps them from going to sleep. `model`: what requests to an OpenAI-compatible server name; empty: the first that it lists.
    """

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=20, choices=ServerKind.choices)
    base_url = models.CharField(max_length=300)
    model = models.CharField(max_length=200, blank=True, default="")
    api_key = SealedField(bound_to="base_url", blank=True, default="")
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
    SEEN = "seen", "Seen"  # done by the server, or from elsewhere


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


class Rollup(models.Model):
    """What a server did in the `step_s` seconds from `t` on (Unix seconds, the server's clock): scheduler_api/history/rollups.py.

    `observed_s` is how much of that it was seen to be up. `busy_s` are slot seconds. `cached_tokens` of the `asked_tokens` in the
    prompts of ended tasks came from the cache. `tasks` are ended ones by reason, `ttft` and `itl` counts by bin of the version
    `bounds`, `slots` prompt and generated tokens by slot, `clients` tokens by client.
    """

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="rollups")
    t = models.BigIntegerField()
    step_s = models.PositiveIntegerField()
    observed_s = models.FloatField(default=0.0)
    prompt_tokens = models.BigIntegerField(default=0)
    generated_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    asked_tokens = models.BigIntegerField(default=0)
    iterations = models.BigIntegerField(default=0)
    busy_s = models.FloatField(default=0.0)
    queue_max = models.PositiveIntegerField(null=True)
    queue_mean = models.FloatField(null=True)
    worst_stall_s = models.FloatField(null=True)
    stalls = models.PositiveIntegerField(default=0)
    kv_used_max = models.BigIntegerField(null=True)
    tasks = models.JSONField(default=dict)
    bounds = models.PositiveSmallIntegerField()
    ttft = models.JSONField(default=dict)
    itl = models.JSONField(default=dict)
    slots = models.JSONField(default=dict)
    clients = models.JSONField(default=dict)
    restarts = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ("t",)
        constraints = (models.UniqueConstraint(fields=["server", "step_s", "t"], name="one_rollup_per_server_step_and_time"),)

    def __str__(self) -> str:
        return f"server {self.server_id}, {self.step_s} s from {self.t}"


from scheduler_api.alerts.models import Alert, Delivery, Recipient, Rule, Silence  # noqa: E402, F401  # Django finds them here
from scheduler_api.audit.models import AuditEntry  # noqa: E402, F401
from scheduler_api.observer.models import ObserverClaim  # noqa: E402, F401
from scheduler_api.policies.models import (  # noqa: E402, F401
    PolicyDrift,
    PolicyGuard,
    PolicyPreset,
    PolicySeen,
    PolicyWindow,
    WindowFiring,
)
