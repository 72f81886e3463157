from __future__ import annotations

from django.apps import AppConfig


class SchedulerApiConfig(AppConfig):
    name = "scheduler_api"
    default_auto_field = "django.db.models.BigAutoField"
