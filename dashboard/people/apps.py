from __future__ import annotations

from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "dashboard.people"
    label = "people"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from dashboard.people import retention, signins
        from workers.retention import added

        added.extend(rule for rule in retention.RULES if rule not in added)
        signins.connect()
