"""The Celery application: `celery -A workers.app worker -B`.

Runs hold a worker slot for minutes, so what must be prompt beside them has a queue of its own: a worker told `-Q upkeep` takes
alerts, policy windows, the search for lost runs and what is old, one told `-Q celery` runs alone, one told nothing takes both.
"""

from __future__ import annotations

import os

from celery import Celery
from kombu.entity import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

from django.conf import settings

from workers import parents

__all__ = ["app", "parents"]

REAP_EVERY_S = 5.0
ALERTS_EVERY_S = 2.0
WINDOWS_EVERY_S = 2.0
DROP_OLD_EVERY_S = 600.0
UPKEEP = "upkeep"

app = Celery("slotboard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_queues=(Queue("celery"), Queue(UPKEEP)),  # type: ignore[no-untyped-call]
    task_routes={f"workers.{name}": {"queue": UPKEEP} for name in ("reap", "windows", "alerts", "deliver", "drop_old")},
    # A worker whose slots are taken leaves messages to those that have free ones: a run waits for its shards.
    worker_disable_prefetch=True,
    beat_schedule_filename=str(settings.VAR_DIR / "celerybeat-schedule"),
    # A reap that found no free worker in time is of no use any more: the next one does its work.
    beat_schedule={
        "reap": {"task": "workers.reap", "schedule": REAP_EVERY_S, "options": {"expires": REAP_EVERY_S}},
        "windows": {"task": "workers.windows", "schedule": WINDOWS_EVERY_S, "options": {"expires": WINDOWS_EVERY_S}},
        "alerts": {"task": "workers.alerts", "schedule": ALERTS_EVERY_S, "options": {"expires": ALERTS_EVERY_S}},
        "drop_old": {"task": "workers.drop_old", "schedule": DROP_OLD_EVERY_S, "options": {"expires": DROP_OLD_EVERY_S}},
    },
)
app.autodiscover_tasks(["workers"])
app.autodiscover_tasks(["workers"], related_name="windows")
