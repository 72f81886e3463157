"""The rows of the audit trail: written once by scheduler_api/audit/service.py, and by nothing else."""

from __future__ import annotations

from datetime import UTC
from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models.signals import pre_delete

from scheduler_api.audit.chain import Content, Link


class Immutable(Exception):
    """Somebody tried to edit or delete what is kept for good."""


class AppendOnly(models.QuerySet["AuditEntry"]):
    def update(self, **_: Any) -> NoReturn:
        raise Immutable("Rows of the audit trail are never edited.")

    def delete(self) -> NoReturn:
        raise Immutable("Rows of the audit trail are never deleted.")

    def bulk_create(self, *_: Any, **__: Any) -> NoReturn:
        raise Immutable("Rows of the audit trail are appended one by one, with audit.record.")

    def bulk_update(self, *_: Any, **__: Any) -> NoReturn:
        raise Immutable("Rows of the audit trail are never edited.")


class AuditEntry(models.Model):
    """What was done by whom. Names and ids are kept as they were: no row depends on another table.

    `before` and `after` are canonical JSON texts (their bytes are what is hashed, on every database), "" for none. `ref` names a
    row that has more: "policychange 12", "run 7".
    """

    seq = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField(db_index=True)
    actor_id = models.BigIntegerField(null=True)
    actor_name = models.CharField(max_length=150, blank=True)
    through = models.CharField(max_length=100, blank=True)
    address = models.CharField(max_length=100, blank=True)
    action = models.CharField(max_length=60, db_index=True)
    subject = models.CharField(max_length=500)
    server_id = models.BigIntegerField(null=True, db_index=True)
    server_name = models.CharField(max_length=80, blank=True)
    ref = models.CharField(max_length=60, blank=True)
    before = models.TextField(blank=True)
    after = models.TextField(blank=True)
    why = models.TextField(blank=True)
    outcome = models.CharField(max_length=10)
    previous = models.CharField(max_length=64, unique=True)
    hash = models.CharField(max_length=64, unique=True)

    objects = AppendOnly.as_manager()

    class Meta:
        ordering: ClassVar = ("-seq",)
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.seq}: {self.actor_name} {self.action} {self.subject}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise Immutable("Rows of the audit trail are never edited.")
        kwargs["force_insert"] = True
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise Immutable("Rows of the audit trail are never deleted.")

    def link(self) -> Link:
        content = Content(
            seq=self.seq,
            at=self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            actor_id=self.actor_id,
            actor_name=self.actor_name,
            through=self.through,
            address=self.address,
            action=self.action,
            subject=self.subject,
            server_id=self.server_id,
            server_name=self.server_name,
            ref=self.ref,
            before=self.before,
            after=self.after,
            why=self.why,
            outcome=self.outcome,
        )
        return Link(content, self.previous, self.hash)


def _refuse(**_: object) -> None:
    raise Immutable("Rows of the audit trail are never deleted.")


pre_delete.connect(_refuse, sender=AuditEntry, dispatch_uid="audit is append-only")
