"""Each start: the database's tables, the group of all servers, one account, the local engine. Doing it again changes nothing."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from dashboard.people.models import ServerGroup
from scheduler_api import audit
from scheduler_api.models import Server


class Command(BaseCommand):
    help = (
        "Migrate, make the group of all servers and a first account (SLOTBOARD_ADMIN_PASSWORD or a generated password), "
        "register the engine."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--static", action="store_true", help="collect the static files too")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0)
        if options["static"]:
            call_command("collectstatic", interactive=False, clear=True, verbosity=0)
        ServerGroup.of_all()
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
        with transaction.atomic():
            server, made = Server.objects.update_or_create(
                name="local",
                defaults={"base_url": settings.LOCAL_ENGINE_URL, "api_key": settings.LOCAL_ENGINE_KEY},
                create_defaults={"kind": "engine", "base_url": settings.LOCAL_ENGINE_URL, "api_key": settings.LOCAL_ENGINE_KEY},
            )
            if made:
                after = {"kind": server.kind, "base_url": server.base_url, "has_key": bool(server.api_key)}
                audit.record("server.registered", server.name, server=server, actor_name="make run", after=after)
