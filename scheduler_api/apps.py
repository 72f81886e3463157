from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class SchedulerApiConfig(AppConfig):
    name = "scheduler_api"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from scheduler_api import checks  # noqa: F401  # registers them
        from scheduler_api.audit import guards

        post_migrate.connect(guards.look_after, sender=self, dispatch_uid="the audit trail's triggers")
