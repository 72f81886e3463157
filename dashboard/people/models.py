"""Groups of servers, who has which role in them, keys for scripts, and links for people without an account."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from scheduler_api.access import Role

ROLES = [(role.value, role.value.capitalize()) for role in Role]
ALL_SERVERS = "All servers"


class ServerGroup(models.Model):
    """Servers that people get a role for together. `everything` marks the group of all servers, which has no rows for them."""

    name = models.CharField(max_length=80, unique=True)
    everything = models.BooleanField(default=False, editable=False)
    servers: models.ManyToManyField[models.Model, models.Model] = models.ManyToManyField(
        "scheduler_api.Server", through="ServerInGroup", related_name="groups"
    )

    class Meta:
        ordering = ("-everything", "name")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["everything"], condition=Q(everything=True), name="one_group_of_all_servers")
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of_all(cls) -> ServerGroup:
        return cls.objects.get_or_create(everything=True, defaults={"name": ALL_SERVERS})[0]


class ServerInGroup(models.Model):
    group = models.ForeignKey(ServerGroup, on_delete=models.CASCADE, related_name="+")
    server = models.ForeignKey("scheduler_api.Server", on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["group", "server"], name="a_server_is_in_a_group_once")]

    def __str__(self) -> str:
        return f"server {self.server_id} in {self.group}"


class Membership(models.Model):
    """Somebody's role on the servers of a group. The highest role counts where groups overlap."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    group = models.ForeignKey(ServerGroup, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=ROLES)

    class Meta:
        ordering = ("-group__everything", "group__name")
        constraints: ClassVar = [models.UniqueConstraint(fields=["user", "group"], name="one_role_in_a_group")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} in {self.group}"


class Scope(models.TextChoices):
    """What a token may do at most; never more than the person whose it is."""

    READ = "read", "Read"
    OPERATE = "operate", "Operate"
    ADMIN = "admin", "Admin"


class ApiToken(models.Model):
    """A key for scripts. `digest` is the SHA-256 of the secret, which is shown once; `start` its first characters, to know it by.

    `group` null: all servers that its person may see.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    start = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=10, choices=Scope.choices)
    group = models.ForeignKey(ServerGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_used_from = models.GenericIPAddressField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-pk")

    def __str__(self) -> str:
        return f"{self.name} ({self.start}…)"

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()

    @property
    def valid(self) -> bool:
        return self.revoked_at is None and not self.expired


class ShareLink(models.Model):
    """Lets whoever has it look at one server's live page, or at one run's result, until `expires_at`."""

    server = models.ForeignKey("scheduler_api.Server", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    run = models.ForeignKey("workers.Run", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64, unique=True)
    note = models.CharField(max_length=120, blank=True, default="")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="share_links")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    opened_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-pk")
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(server__isnull=True, run__isnull=False) | Q(server__isnull=False, run__isnull=True),
                name="a_link_shows_one_thing",
            )
        ]

    def __str__(self) -> str:
        return f"link {self.pk} to {self.what}"

    @property
    def what(self) -> str:
        return f"run {self.run_id}, result" if self.run_id else f"{self.server}, live"

    @property
    def expired(self) -> bool:
        return self.expires_at <= timezone.now()

    @property
    def valid(self) -> bool:
        return self.revoked_at is None and not self.expired
