"""Runs whose worker died, and runs that the broker forgot. Safe to run at any time, by any number of workers."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.utils import timezone
from kombu.exceptions import OperationalError

from workers import lease, queueing, runlog
from workers.errors import BrokerDown
from workers.models import ACTIVE, HELD, Run, RunState
from workers.queueing import send
from workers.recording import add_warning
from workers.restore import restore

log = logging.getLogger(__name__)

SEND_AGAIN_AFTER_S = 60.0


def reap() -> list[int]:
    """Marks runs without a heartbeat lost and puts their policy back, sends long queued runs again, and those that have waited
    for their turn. Ids of the lost ones.
    """
    lost = [run.pk for run in lease.expired() if _bury(run)]
    _send_forgotten()
    queueing.dispatch()
    return lost


def close_all(why: str) -> int:
    """Ends every run that has not ended, where nothing can be at work on one: after a restore. Policies stay. How many."""
    open_ones = Run.objects.filter(state__in=(RunState.WAITING, *ACTIVE))
    ids = list(open_ones.values_list("pk", flat=True))
    ended = {"finished_at": timezone.now(), "progress_text": ""}
    Run.objects.filter(pk__in=ids, state__in=HELD).update(state=RunState.LOST, error=why, **ended)
    Run.objects.filter(pk__in=ids, state__in=(RunState.WAITING, RunState.QUEUED)).update(
        state=RunState.STOPPED, stop_requested=True, stop_reason=why[:300], **ended
    )
    for pk in ids:
        runlog.note(pk, why, "warning", "console")
    return len(ids)


def _bury(run: Run) -> bool:
    silence = f"{lease.LOST_AFTER_S:g} s"
    if not lease.take_from_the_dead(run, f"The worker was not heard of for {silence}; its blocks up to then are kept."):
        return False
    runlog.note(run.pk, f"Lost: its worker ({run.worker}) was not heard of for {silence}.", "error", "reaper")
    restored = restore(run, "lost: the policy found before it")
    warnings = list(run.warnings)
    if restored.text:
        add_warning(warnings, restored.text)
    Run.objects.filter(pk=run.pk, state=RunState.LOST).update(policy_restored=restored.done, warnings=warnings)
    log.warning("Run %d is lost; policy put back: %s", run.pk, restored.done)
    return True


def _send_forgotten() -> None:
    """A broker that lost its memory leaves queued runs behind. Sending twice does no harm: one delivery claims the run."""
    limit = timezone.now() - timedelta(seconds=SEND_AGAIN_AFTER_S)
    for run in Run.objects.filter(state=RunState.QUEUED, enqueued_at__lt=limit):
        if Run.objects.filter(pk=run.pk, state=RunState.QUEUED, enqueued_at=run.enqueued_at).update(enqueued_at=timezone.now()):
            try:
                send(run)
            except (BrokerDown, OperationalError):
                log.warning("Run %d could not be sent again: the broker cannot be reached", run.pk)
