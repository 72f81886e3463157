from __future__ import annotations

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from scheduler_api.history import store
        from workers import selectors

        store.run_sources.append(selectors.runs_between)
