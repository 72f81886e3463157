"""Runs that wait: for their time, or for the run before them on their server. Any number of workers may look at once."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone
from kombu.exceptions import OperationalError

from scheduler_api.models import Server
from workers import broker, runlog
from workers.app import app
from workers.errors import BrokerDown
from workers.models import ACTIVE, Run, RunState

log = logging.getLogger(__name__)

RUN_TASK = "workers.run_experiment"
FOR_A_WORKER = "Waiting for a worker"
FOR_ITS_TIME = "Waiting for its time"


def send(run: Run) -> None:
    """Hands the run to whichever worker is free. Raises BrokerDown, or kombu's OperationalError when it goes down just now."""
    if not broker.reachable():
        raise BrokerDown
    message = app.send_task(RUN_TASK, (run.pk,), retry=False)
    Run.objects.filter(pk=run.pk).update(celery_id=str(message.id))


def in_the_way(server: Server) -> Run | None:
    """The run that has the server, else the one that gets it next; None when the server is free."""
    return Run.objects.filter(server=server, state__in=ACTIVE).first() or _due(timezone.now()).filter(server=server).first()


def dispatch() -> list[int]:
    """Sends each waiting run whose time has come and whose server is free, the longest due first. Ids of those that were sent."""
    taken: set[int | None] = set(Run.objects.filter(state__in=ACTIVE).values_list("server_id", flat=True))
    sent = []
    for run in _due(timezone.now()):
        if run.server_id not in taken:
            taken.add(run.server_id)
            if _release(run):
                sent.append(run.pk)
    return sent


def _due(now: datetime) -> QuerySet[Run]:
    ready = Run.objects.filter(state=RunState.WAITING).filter(Q(not_before=None) | Q(not_before__lte=now))
    return ready.order_by(Coalesce("not_before", "created_at"), "pk")


def _release(run: Run) -> bool:
    """The database lets one run a server become active, so of several dispatchers one gets through."""
    try:
        with transaction.atomic():
            changed = Run.objects.filter(pk=run.pk, state=RunState.WAITING).update(
                state=RunState.QUEUED, enqueued_at=timezone.now(), progress_text=FOR_A_WORKER
            )
    except IntegrityError:
        return False
    if not changed:
        return False
    if run.server is None or not run.server.enabled:
        return _give_up(run)
    try:
        send(run)
    except (BrokerDown, OperationalError):
        Run.objects.filter(pk=run.pk, state=RunState.QUEUED).update(state=RunState.WAITING, enqueued_at=None)
        log.warning("Run %d still waits: the broker cannot be reached", run.pk)
        return False
    runlog.note(run.pk, "Its turn has come: sent to the workers.", source="dispatcher")
    return True


def _give_up(run: Run) -> bool:
    """What a start would refuse, when it came about while the run waited."""
    error = f"{run.server.name if run.server else 'Its server'} is switched off in the registry."
    Run.objects.filter(pk=run.pk, state=RunState.QUEUED).update(
        state=RunState.FAILED, error=error, progress_text="", finished_at=timezone.now()
    )
    runlog.note(run.pk, f"Failed. {error}", "error", "dispatcher")
    return False


def before(run: Run) -> list[Run]:
    """The runs that have the server of a waiting run before it does, the one that has it now first."""
    server = Run.objects.select_related("server").filter(server=run.server_id)
    due = list(_due(timezone.now()).filter(server=run.server_id).select_related("server"))
    place = next((at for at, each in enumerate(due) if each.pk == run.pk), len(due))
    return [*server.filter(state__in=ACTIVE), *due[:place]]
