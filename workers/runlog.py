"""A run's log: lines with their time, for the operator. Writing one never ends a run."""

from __future__ import annotations

import logging
from typing import Literal

from django.db import DatabaseError, transaction
from django.utils import timezone

from workers.models import LogLine

log = logging.getLogger(__name__)

MOST_CHARACTERS = 500

type Level = Literal["info", "warning", "error"]


def note(run_id: int, text: str, level: Level = "info", source: str = "worker") -> None:
    """A line of the run's log, as of now. A database that does not take it is told to the worker's own log alone."""
    try:
        with transaction.atomic():
            LogLine.objects.create(run_id=run_id, at=timezone.now(), level=level, source=source[:40], text=text[:MOST_CHARACTERS])
    except DatabaseError:
        log.warning("Run %d: a line of its log could not be kept: %s", run_id, text, exc_info=True)
