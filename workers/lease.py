"""Who holds a run. Each change of hands is one conditional update that must touch exactly one row.

A worker claims a queued run and gets a lease; every later write names the lease, so a worker that was taken for dead, and is not,
finds out at its next write and stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import DatabaseError, connection
from django.utils import timezone

from workers.errors import LeaseLost, RunStopped
from workers.models import HELD, Run, RunState

log = logging.getLogger(__name__)

POLL_S = 0.2
HEARTBEAT_S = 2.0
LOST_AFTER_S = 15.0


def claim(run_id: int, worker: str) -> str | None:
    """The lease of a run that was queued; None when it is not, as at a second delivery of the same task."""
    lease, now = uuid4().hex, timezone.now()
    taken = Run.objects.filter(pk=run_id, state=RunState.QUEUED).update(
        state=RunState.RUNNING, lease=lease, worker=worker, started_at=now, heartbeat_at=now
    )
    return lease if taken == 1 else None


def write(run_id: int, lease: str, **fields: Any) -> None:
    """Raises LeaseLost when the run is not this lease's any more."""
    if Run.objects.filter(pk=run_id, lease=lease, state__in=HELD).update(**fields) != 1:
        raise LeaseLost


def expired() -> list[Run]:
    """Runs whose worker has not been heard of for LOST_AFTER_S."""
    limit = timezone.now() - timedelta(seconds=LOST_AFTER_S)
    return list(Run.objects.select_related("server").filter(state__in=HELD, heartbeat_at__lt=limit))


def take_from_the_dead(run: Run, error: str) -> bool:
    """Marks an expired run lost. False when its worker was heard again or somebody else was first."""
    now = timezone.now()
    changed = Run.objects.filter(
        pk=run.pk, state__in=HELD, lease=run.lease, heartbeat_at__lt=now - timedelta(seconds=LOST_AFTER_S)
    ).update(state=RunState.LOST, finished_at=now, error=error, progress_text="")
    return changed == 1


class Watch:
    """Keeps the heartbeat going and notices a stop, on a thread of its own, while the run works.

    After `interrupted` is set, `check` raises and the function given to `calling` has been called once.
    """

    def __init__(self, run_id: int, lease: str) -> None:
        self._run_id = run_id
        self._lease = lease
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._call: Callable[[], None] | None = None
        self._reason: RunStopped | LeaseLost | None = None
        self._thread = threading.Thread(target=self._watch, name=f"watch-run-{run_id}", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raises RunStopped or LeaseLost once either has come about."""
        if self._reason is not None:
            raise self._reason

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """`call` runs on the watch's thread at the interruption, or at once when that was before."""
        with self._lock:
            self._call = call
            late = self._reason is not None
        if late:
            call()
        try:
            yield
        finally:
            with self._lock:
                self._call = None

    def _watch(self) -> None:
        beats, polls_a_beat = 0, round(HEARTBEAT_S / POLL_S)
        try:
            while self._reason is None and not self._over.wait(POLL_S):
                beats += 1
                try:
                    self._look(beat=beats % polls_a_beat == 0)
                except DatabaseError:
                    log.warning("Run %d: the database did not answer the watch", self._run_id, exc_info=True)
            while not self._over.wait(HEARTBEAT_S):
                self._beat()
        finally:
            connection.close()

    def _look(self, *, beat: bool) -> None:
        held = Run.objects.filter(pk=self._run_id, lease=self._lease, state__in=HELD)
        row = held.values_list("stop_requested", flat=True).first()
        if row is None:
            self._interrupt(LeaseLost())
        elif row:
            self._interrupt(RunStopped())
        if beat:
            self._beat()

    def _beat(self) -> None:
        try:
            Run.objects.filter(pk=self._run_id, lease=self._lease, state__in=HELD).update(heartbeat_at=timezone.now())
        except DatabaseError:
            log.warning("Run %d: the heartbeat could not be written", self._run_id, exc_info=True)

    def _interrupt(self, reason: RunStopped | LeaseLost) -> None:
        with self._lock:
            self._reason = reason
            if self._call is not None:
                self._call()
