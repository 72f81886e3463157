"""First start: the roles, one account, the local engine. Doing it again changes nothing."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand

from dashboard.roles import Role
from scheduler_api.models import Server


class Command(BaseCommand):
    help = "Make the roles, a first account (SLOTBOARD_ADMIN_PASSWORD or a generated password) and register the local engine."

    def handle(self, *args: Any, **options: Any) -> None:
        for role in Role:
            Group.objects.get_or_create(name=role.value)
        self.ensure_account()
        self.ensure_local_engine()

    def ensure_account(self) -> None:
        name = os.environ.get("SLOTBOARD_ADMIN_NAME", "admin")
        given = os.environ.get("SLOTBOARD_ADMIN_PASSWORD", "")
        user = User.objects.filter(username=name).first()
        if user is not None and given and not user.check_password(given):
            user.set_password(given)
            user.save()
            self.stdout.write(f"slotboard: the password of {name} is now the one in SLOTBOARD_ADMIN_PASSWORD")
        if user is None and not User.objects.exists():
            password = given or secrets.token_urlsafe(12)
            User.objects.create_superuser(username=name, password=password)
            shown = "the one in SLOTBOARD_ADMIN_PASSWORD" if given else f"{password}   (shown only now)"
            self.stdout.write(f"slotboard: first account: {name}, password: {shown}")

    def ensure_local_engine(self) -> None:
        """The engine of `make run` is the server named "local"; its URL and key follow the environment."""
        Server.objects.update_or_create(
            name="local",
            defaults={"base_url": settings.LOCAL_ENGINE_URL, "api_key": settings.LOCAL_ENGINE_KEY},
            create_defaults={"kind": "engine", "base_url": settings.LOCAL_ENGINE_URL, "api_key": settings.LOCAL_ENGINE_KEY},
        )
