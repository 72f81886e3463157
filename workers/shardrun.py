"""A shard at work: takes orders of its run, until the run is over, stopped, or held by nobody any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from django.db.models import F
from django.utils import timezone

from scheduler_api.exceptions import SchedulerApiError
from workers import refclock, runlog
from workers.errors import LeaseLost, RunFailed, RunStopped, WorkerError
from workers.lease import Watch
from workers.load.clock import ClientClock
from workers.load.prompts import PromptError
from workers.models import HELD, Shard
from workers.refclock import Offset
from workers.scenarios import ScenarioError
from workers.sending import Order, Prepared, Sender
from workers.sharding import POLL_S

log = logging.getLogger(__name__)


def serve(shard_id: int, worker: str) -> bool:
    """All orders of its run; False when the shard was not there to be taken, as at a second delivery of the same task."""
    lease = uuid4().hex
    free = Shard.objects.filter(pk=shard_id, lease="", run__lease=F("run_lease"), run__state__in=HELD)
    if not free.update(lease=lease, worker=worker, heartbeat_at=timezone.now()):
        log.info("Shard %d is taken or of no use any more, so this delivery does nothing", shard_id)
        return False
    shard = Shard.objects.select_related("run", "run__server").get(pk=shard_id)
    hold = ShardHold(shard, lease)
    with Watch(shard.run_id, lease, hold) as watch:
        try:
            _Serving(shard, hold, watch).go()
        except (LeaseLost, RunStopped):
            return True
        except RunFailed as failure:
            hold.write(error=failure.text)
        except (SchedulerApiError, PromptError, ScenarioError) as failure:
            hold.write(error=str(failure))
        except Exception as failure:
            log.exception("Shard %d of run %d failed", shard.number, shard.run_id)
            hold.write(error=f"An unexpected error ended it ({type(failure).__name__}); see the worker's log.")
    return True


class ShardHold:
    def __init__(self, shard: Shard, lease: str) -> None:
        self.name = f"Shard {shard.number} of run {shard.run_id}"
        self._own = Shard.objects.filter(pk=shard.pk, lease=lease)
        self._held = self._own.filter(run__lease=F("run_lease"), run__state__in=HELD)

    def interruption(self) -> WorkerError | None:
        asked = self._held.values_list("run__stop_requested", flat=True).first()
        return LeaseLost() if asked is None else RunStopped() if asked else None

    def beat(self) -> None:
        self._own.update(heartbeat_at=timezone.now())

    def write(self, **fields: Any) -> None:
        self._own.update(**fields)

    def order(self) -> tuple[int, dict[str, Any], float | None]:
        """The number of the last order, the order, and when it starts."""
        found = self._own.values_list("order_number", "order", "start_at").first()
        if found is None:
            raise LeaseLost
        return found


class _Serving:
    def __init__(self, shard: Shard, hold: ShardHold, watch: Watch) -> None:
        self._shard, self._hold, self._watch = shard, hold, watch
        self._run = shard.run
        self._clock = ClientClock()

    def go(self) -> None:
        later: list[Callable[[], None]] = []
        self._sender = Sender(self._run, self._watch, self._clock, later)
        try:
            self._obey()
        finally:
            for work in later:
                work()

    def _obey(self) -> None:
        self._offset = refclock.measure(self._clock)
        self._hold.write(clock_offset_s=self._offset.seconds, clock_error_s=self._offset.error)
        self._note(f"Joined: {self._shard.worker}; its clock is known to {self._offset.error * 1000:.2f} ms.")
        done = 0
        while True:
            number, order, _ = self._hold.order()
            if number > done:
                self._carry_out(number, Order(**order))
                done = number
            else:
                self._watch.sleep(POLL_S)

    def _carry_out(self, number: int, order: Order) -> None:
        shift_s = self._offset.beside(Offset(order.clock_offset_s, order.clock_error_s))
        prepared = Prepared(self._sender, order, self._shard.number - 1, self._run.shards, shift_s)
        self._hold.write(ready_number=number)
        while (start_at := self._hold.order()[2]) is None:
            self._watch.sleep(POLL_S)
        report = prepared.go(
            start_at - self._offset.seconds, lambda live: self._hold.write(live={**live, "at": live["at"] + shift_s})
        )
        self._hold.write(done_number=number, report=report.as_json())

    def _note(self, text: str) -> None:
        runlog.note(self._run.pk, text, source=f"shard {self._shard.number}")
