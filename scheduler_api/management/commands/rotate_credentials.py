"""Encrypts every stored credential anew under the first credential key, after which the older keys can go."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import models, transaction

from scheduler_api.alerts.models import Recipient
from scheduler_api.models import Server
from scheduler_api.sealing import SealedField


class Command(BaseCommand):
    help = "Encrypt stored keys and webhooks under the first key of SLOTBOARD_CREDENTIAL_KEYS."

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            lost = [name for model in (Server, Recipient) for row in _rows(model) if (name := _rotated(row))]
        if lost:
            raise CommandError(
                f"{', '.join(lost)}: opened by none of the keys, and left as it is. Give the older key too, or enter it anew; "
                "all others are under the first key."
            )
        self.stdout.write("slotboard: every credential is under the first key; the others can go.")


def _rows(model: type[models.Model]) -> list[Any]:
    return list(model._default_manager.select_for_update().order_by("pk"))


def _rotated(row: Any) -> str:
    """The row's name when something of it could not be opened."""
    names = [field.attname for field in row._meta.concrete_fields if isinstance(field, SealedField)]
    row.save(update_fields=names)
    return f"{row._meta.verbose_name} {row}" if any(getattr(getattr(row, name), "lost", "") for name in names) else ""
