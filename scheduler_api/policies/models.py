"""What is kept about policies beyond their changes: presets, guard rails, drift, windows. Times are the console's."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q


class PolicyPreset(models.Model):
    """A policy under a name. `values` may leave fields out: those stay as they are."""

    name = models.CharField(max_length=80, unique=True)
    meaning = models.CharField(max_length=300, blank=True, default="")
    values = models.JSONField(default=dict)
    by_name = models.CharField(max_length=150, blank=True, default="")
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class PolicySeen(models.Model):
    """The policy that the console knows a server to have: what it set itself, or what its observer saw last."""

    server = models.OneToOneField("scheduler_api.Server", primary_key=True, on_delete=models.CASCADE, related_name="policy_seen")
    version = models.BigIntegerField()
    requested = models.JSONField(default=dict)
    reverts_to = models.JSONField(null=True)
    started_at = models.FloatField(null=True)
    at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"server {self.server_id} at version {self.version}"


class PolicyDrift(models.Model):
    """The policy is not what it was known to be. `expected` and `found` are whole requested policies."""

    class Cause(models.TextChoices):
        RESTART = "restart", "Restart"
        ELSEWHERE = "elsewhere", "Elsewhere"

    class State(models.TextChoices):
        OPEN = "open", "Open"
        REAPPLIED = "reapplied", "Applied again"
        LEFT = "left", "Left as it is"
        SUPERSEDED = "superseded", "Changed since"

    server = models.ForeignKey("scheduler_api.Server", on_delete=models.CASCADE, related_name="policy_drifts")
    found_at = models.DateTimeField()
    cause = models.CharField(max_length=10, choices=Cause.choices)
    expected = models.JSONField(default=dict)
    found = models.JSONField(default=dict)
    version = models.BigIntegerField()
    reason = models.CharField(max_length=500, blank=True, default="")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    settled_at = models.DateTimeField(null=True)
    settled_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ("-found_at", "-pk")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["server"], condition=Q(state="open"), name="one_open_drift_per_server")
        ]

    def __str__(self) -> str:
        return f"server {self.server_id}, {self.cause}: {self.state}"

    def differences(self) -> dict[str, Any]:
        """What would have to be set for it to be as expected."""
        return {name: value for name, value in self.expected.items() if name in self.found and self.found[name] != value}


class PolicyGuard(models.Model):
    """Conditions that put a change back. It watches the policy's `version`, and ends when that does."""

    class State(models.TextChoices):
        WATCHING = "watching", "Watching"
        REVERTED = "reverted", "Reverted"
        FAILED = "failed", "Could not revert"
        ENDED = "ended", "Ended"

    server = models.ForeignKey("scheduler_api.Server", on_delete=models.CASCADE, related_name="policy_guards")
    change = models.OneToOneField("scheduler_api.PolicyChange", on_delete=models.CASCADE, related_name="guard")
    version = models.BigIntegerField()
    changed_at = models.FloatField()  # the server's clock
    back_to = models.JSONField(default=dict)
    conditions = models.JSONField(default=list)
    until = models.DateTimeField(null=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WATCHING)
    armed_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    text = models.CharField(max_length=500, blank=True, default="")
    alert_closed = models.BooleanField(default=False)

    class Meta:
        ordering = ("-armed_at", "-pk")

    def __str__(self) -> str:
        return f"guard of change {self.change_id}: {self.state}"


class PolicyWindow(models.Model):
    """A policy by the clock: on `days` (0 is Monday) from `begins` to `ends` in `zone`, or once from `starts_at` to `ends_at`.

    `outside` null: at the end the server goes back by itself to what it had.
    """

    server = models.ForeignKey("scheduler_api.Server", on_delete=models.CASCADE, related_name="policy_windows")
    name = models.CharField(max_length=80)
    enabled = models.BooleanField(default=True)
    days = models.JSONField(default=list)
    begins = models.TimeField(null=True)
    ends = models.TimeField(null=True)
    zone = models.CharField(max_length=60, default="UTC")
    starts_at = models.DateTimeField(null=True)
    ends_at = models.DateTimeField(null=True)
    inside = models.JSONField(default=dict)
    outside = models.JSONField(null=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=150, blank=True, default="")
    since = models.DateTimeField()  # edges before it are none of its own

    class Meta:
        ordering = ("server", "name")
        constraints: ClassVar = [models.UniqueConstraint(fields=["server", "name"], name="one_window_per_server_and_name")]

    def __str__(self) -> str:
        return self.name


class WindowFiring(models.Model):
    """One attempt at one edge of a window, made before it is tried: so no edge is tried again unseen."""

    class Outcome(models.TextChoices):
        TRYING = "trying", "Being tried"
        APPLIED = "applied", "Applied"
        ALREADY = "already", "In force already"
        REFUSED = "refused", "Not applied"
        FAILED = "failed", "Failed"

    window = models.ForeignKey(PolicyWindow, on_delete=models.CASCADE, related_name="firings")
    edge = models.CharField(max_length=5)  # "begin" or "end"
    due = models.DateTimeField()
    attempt = models.PositiveSmallIntegerField(default=1)
    at = models.DateTimeField(auto_now_add=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.TRYING)
    text = models.CharField(max_length=500, blank=True, default="")
    version = models.BigIntegerField(null=True)

    class Meta:
        ordering = ("-due", "-attempt")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["window", "edge", "due", "attempt"], name="one_firing_per_edge_and_attempt")
        ]

    def __str__(self) -> str:
        return f"window {self.window_id} {self.edge} {self.due}: {self.outcome}"
