"""Who holds a run. Each change of hands is one conditional update that must touch exactly one row.

A worker claims a queued run and gets a lease; every later write names the lease, so a worker that was taken for dead, and is not,
finds out at its next write and stops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol
from uuid import uuid4

from django.db import DatabaseError, connection
from django.utils import timezone

from workers.errors import LeaseLost, RunStopped, WorkerError
from workers.models import HELD, Run, RunState

log = logging.getLogger(__name__)

POLL_S = 0.2
TICK_S = 0.6  # between two writings of a load's progress: at most twice a second
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


class Hold(Protocol):
    """What a worker holds while it works: a run, or a shard of one."""

    name: str

    def interruption(self) -> WorkerError | None:
        """Why the work must end now; None while it may go on. Raises DatabaseError."""

    def beat(self) -> None:
        """Says that the worker lives. Raises DatabaseError."""


class RunHold:
    def __init__(self, run_id: int, lease: str) -> None:
        self.name = f"Run {run_id}"
        self._rows = Run.objects.filter(pk=run_id, lease=lease, state__in=HELD)

    def interruption(self) -> WorkerError | None:
        asked = self._rows.values_list("stop_requested", flat=True).first()
        return LeaseLost() if asked is None else RunStopped() if asked else None

    def beat(self) -> None:
        self._rows.update(heartbeat_at=timezone.now())


class Watch:
    """Keeps the heartbeat going, notices a stop, and writes down what goes on, on a thread of its own, while the work runs.

    After `interrupted` is set, `check` raises and the function given to `calling` has been called once. `also` may hold further
    reasons to end.
    """

    def __init__(self, run_id: int, lease: str, hold: Hold | None = None) -> None:
        self._hold: Hold = hold or RunHold(run_id, lease)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._call: Callable[[], None] | None = None
        self._ticks = threading.Lock()
        self._tick: Callable[[], None] | None = None
        self._reason: WorkerError | None = None
        self.also: list[Callable[[], WorkerError | None]] = []
        self._thread = threading.Thread(target=self._watch, name=f"watch {self._hold.name}", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raises RunStopped, LeaseLost or another reason of `also` once it has come about."""
        if self._reason is not None:
            raise self._reason

    def sleep(self, seconds: float) -> None:
        """Raises as `check` does, within POLL_S of the reason."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, POLL_S))
        self.check()

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

    @contextmanager
    def ticking(self, tick: Callable[[], None]) -> Iterator[None]:
        """`tick` runs on the watch's thread every TICK_S until the block is left or the work is interrupted; never after it."""
        with self._ticks:
            self._tick = tick
        try:
            yield
        finally:
            with self._ticks:
                self._tick = None

    def _watch(self) -> None:
        polls, a_beat, a_tick = 0, round(HEARTBEAT_S / POLL_S), round(TICK_S / POLL_S)
        try:
            while self._reason is None and not self._over.wait(POLL_S):
                polls += 1
                self._try(self._look)
                if polls % a_beat == 0:
                    self._try(self._hold.beat)
                if polls % a_tick == 0 and self._reason is None:
                    self._try(self._do_tick)
            while not self._over.wait(HEARTBEAT_S):
                self._try(self._hold.beat)
        finally:
            connection.close()

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except DatabaseError:
            log.warning("%s: the database did not answer the watch", self._hold.name, exc_info=True)

    def _look(self) -> None:
        reason = self._hold.interruption() or next((found for look in self.also if (found := look()) is not None), None)
        if reason is not None:
            with self._lock:
                self._reason = reason
                if self._call is not None:
                    self._call()

    def _do_tick(self) -> None:
        with self._ticks:
            if self._tick is None:
                return
            try:
                self._tick()
            except (DatabaseError, LeaseLost):  # the next one comes all the same, or the next look finds out
                log.info("%s: its progress could not be written", self._hold.name, exc_info=True)
            except Exception:  # whatever it is, the heartbeat goes on
                log.exception("%s: its progress is not written any more", self._hold.name)
                self._tick = None
