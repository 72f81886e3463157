"""The shards of a run as its own worker sees them: it calls them, gives orders, and gathers what came of them.

The run's worker is shard 1; shards 2 to n are Celery tasks on whichever workers are free, on any machine that shares database,
broker and Valkey. An order goes the same way for all: each plans the whole load from the run's seed, keeps its part
(`workers.load.shards`), says that it is ready, and begins at a moment that is given on the reference clock (`workers.refclock`)
once all are. Records go to the database from where they were made, so what is merged is the requests themselves; above
`tally.RAW_MOST` requests histograms that add up stand beside a part of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils import timezone
from kombu.exceptions import OperationalError

from workers import broker, refclock
from workers.app import app
from workers.errors import RunFailed, ShardLost, WorkerError
from workers.lease import LOST_AFTER_S, Watch
from workers.load.clock import ClientClock
from workers.models import Run, Shard
from workers.sending import Order, Report

type Json = dict[str, Any]

SHARD_TASK = "workers.run_shard"
JOIN_WITHIN_S = 15.0  # a free worker slot takes a task at once
READY_WITHIN_S = 120.0  # for planning and encoding; a million requests take a minute
POLL_S = 0.05
LEAD_S = 0.4  # from the giving of a start to the start: several polls of a shard


class Crew:
    """Shards 2 to n of a run."""

    def __init__(self, run: Run, held: str, watch: Watch, clock: ClientClock) -> None:
        self._run, self._held, self._watch, self._clock = run, held, watch, clock
        self._rows = Shard.objects.filter(run=run, run_lease=held)
        self._number = 0
        self.offset = refclock.measure(clock)

    def call(self, say: Callable[[str], None]) -> list[Json]:
        """Waits for a worker for each. What each told of itself, for the run's conditions. Raises RunFailed."""
        count = self._run.shards
        Shard.objects.filter(run=self._run).delete()
        numbers = range(2, count + 1)
        rows = Shard.objects.bulk_create(Shard(run=self._run, number=number, run_lease=self._held) for number in numbers)
        try:
            if not broker.reachable():
                raise RunFailed("The message broker cannot be reached, so no worker would hear of the run's shards.")
            for row in rows:
                app.send_task(SHARD_TASK, (row.pk,), retry=False)
        except OperationalError as error:
            raise RunFailed(f"The message broker did not take the run's shards: {error}.") from None
        self._watch.also.append(self._health)
        left = JOIN_WITHIN_S
        while (joined := self._rows.filter(clock_offset_s__isnull=False).count()) < count - 1:
            if left <= 0:
                raise RunFailed(
                    f"The run asks for {count} shards, and within {JOIN_WITHIN_S:g} s there was a free worker slot for "
                    f"{joined + 1} of them: start more workers (or a larger --concurrency), or choose fewer shards."
                )
            say(f"Waiting for worker slots: {joined + 1} of {count} shards have one")
            self._watch.sleep(0.5)
            left -= 0.5
        own = {"shard": 1, "worker": self._run.worker, "clock_offset_s": self.offset.seconds, "clock_error_s": self.offset.error}
        told = self._rows.values("number", "worker", "clock_offset_s", "clock_error_s")
        return [own, *({"shard": row.pop("number"), **row} for row in map(dict, told))]

    def give(self, order: Order) -> None:
        self._number += 1
        self._rows.update(order=order.as_json(), order_number=self._number, start_at=None, live=None, report={})

    def start(self) -> float:
        """Once all are ready: the common start, on this worker's clock. Raises RunFailed."""
        self._wait("ready_number", READY_WITHIN_S)
        start_at = self._clock.now() + LEAD_S
        self._rows.update(start_at=start_at + self.offset.seconds)
        return start_at

    def gather(self) -> list[Report]:
        """Once all have sent their parts to the end. Raises what the watch finds: a shard that failed or is gone."""
        self._wait("done_number", None)
        return [Report.of_json(report) for report in self._rows.values_list("report", flat=True)]

    def live(self) -> list[Json]:
        """The progress of those that have written any."""
        return [live for live in self._rows.values_list("live", flat=True) if live]

    def _wait(self, field: str, limit_s: float | None) -> None:
        begun = self._clock.now()
        while self._rows.filter(**{f"{field}__lt": self._number}).exists():
            if limit_s is not None and self._clock.now() - begun > limit_s:
                raise RunFailed(f"A shard was not ready to send within {limit_s:g} s.")
            self._watch.sleep(POLL_S)

    def _health(self) -> WorkerError | None:
        silent = timezone.now() - timedelta(seconds=LOST_AFTER_S)
        for row in self._rows.exclude(lease="").only("number", "worker", "error", "heartbeat_at"):
            if row.error:
                return RunFailed(f"Shard {row.number} ({row.worker}) failed. {row.error}")
            if row.heartbeat_at is not None and row.heartbeat_at < silent:
                return ShardLost(
                    f"The worker of shard {row.number} ({row.worker}) was not heard of for {LOST_AFTER_S:g} s, so a part of the "
                    "load was not sent; complete blocks are kept."
                )
        return None
