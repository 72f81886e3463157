"""Looks at every server's state once a second for what the rules name, and keeps the alerts. Apart from frames.

One observer does so for all, whoever watches the servers: the one with the lease of the alerts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import time

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from scheduler_api.alerts import conditions, store
from scheduler_api.alerts.kinds import NOT_OF_STATE, Spec, in_force
from scheduler_api.alerts.models import Alert
from scheduler_api.alerts.progress import Progress
from scheduler_api.alerts.tracking import Key, Pair, Track, Tracks, Transition
from scheduler_api.frames import State
from scheduler_api.observer import claims
from scheduler_api.observer.leases import Lease

logger = logging.getLogger(__name__)

LOOK_S = 1.0
RULES_S = 3.0
TOUCH_S = 5.0
RETRY_S = 5.0
LAST_S = 0.5
MOST_WAITING = 10_000

#: The last published state of each server that is watched, None before its first; None while it is not known which are watched.
type States = Callable[[], Mapping[int, State | None] | None]


@dataclass(slots=True)
class Lookout:
    """Rules, tracks and what of them is not written yet. `look` does no I/O; `run` does the rest."""

    states: States
    lease: Callable[[], Lease | None]  # of the alerts, while it is held
    lost: Callable[[Lease], None]  # told when it does not count any more
    rules: list[Spec] = field(default_factory=list)
    tracks: Tracks = field(default_factory=Tracks)
    progress: dict[int, Progress] = field(default_factory=dict)
    waiting: list[Transition] = field(default_factory=list)
    adopted: bool = False
    rules_at: float = 0.0
    touched_at: float = 0.0
    not_before: float = 0.0
    failed: bool = False

    async def run(self) -> None:
        """Until cancelled. What fails in it is logged, and it goes on."""
        while True:
            try:
                await self._round()
            except claims.Lost as lost:
                if lost.lease is not None:
                    self.lost(lost.lease)
            except Exception:
                logger.exception("The alerts could not be evaluated; it goes on.")
            await asyncio.sleep(LOOK_S)

    async def _round(self) -> None:
        now = time()
        if now < self.not_before:
            if self.adopted:
                await self.look(now)
            return
        try:
            await self._read(now)
            await self.look(now)
            await self._write(now)
        except DatabaseError as error:
            self.not_before = now + RETRY_S
            if not self.failed:
                logger.warning("The alerts cannot be read or written; it is tried again: %s", error)
            self.failed = True
        else:
            self.failed = False

    async def _read(self, now: float) -> None:
        if now - self.rules_at < RULES_S:
            return
        self.rules, alerts = await sync_to_async(_read)(adopted=self.adopted)
        self.rules_at = now
        if not self.adopted:
            self.adopt(alerts)

    def adopt(self, alerts: list[Alert]) -> None:
        """Goes on from the alerts that are open: none of them opens again, and each is closed only once its end was seen."""
        for alert in alerts:
            assert alert.rule_id is not None
            began = alert.began_at.timestamp()
            self.tracks.adopt((alert.rule_id, alert.server_id, alert.key), began, alert.peak_s)
            if alert.server_id is not None and alert.slot is not None:
                since = alert.last_seen_at.timestamp() - max(alert.peak_s, alert.limit_s)
                self._progress(alert.server_id).adopt(alert.slot, alert.task, since)
        self.adopted = True

    def _progress(self, server_id: int) -> Progress:
        return self.progress.setdefault(server_id, Progress())

    async def look(self, now: float) -> None:
        """One look at every server, with a turn for others between two of them."""
        states = self.states()
        if states is None:
            return
        pairs: list[Pair] = []
        for server_id, state in states.items():
            rules = [rule for rule in in_force(self.rules, server_id) if rule.kind not in NOT_OF_STATE]
            pairs += [(rule.id, server_id) for rule in rules]
            self._take(self._look_at(server_id, state, rules, now))
            await asyncio.sleep(0)
        self.progress = {pk: progress for pk, progress in self.progress.items() if pk in states}
        self._take(self.tracks.close_others(pairs, now, store.SWITCHED_OFF))

    def _look_at(self, server_id: int, state: State | None, rules: list[Spec], now: float) -> list[Transition]:
        progress = self._progress(server_id)
        conditions.observe(state, progress, now)
        found: list[Transition] = []
        for rule in rules:
            seen = conditions.find(rule.kind, state, progress, now, rule.threshold_s)
            found += self.tracks.step(rule, server_id, seen, now)
        return found

    def _take(self, transitions: list[Transition]) -> None:
        self.waiting = [*self.waiting, *transitions][-MOST_WAITING:]

    async def _write(self, now: float) -> None:
        waiting, touched = self.waiting, self.tracks.open() if now - self.touched_at >= TOUCH_S else {}
        if waiting or touched:
            await sync_to_async(_write)(waiting, touched, self.lease())
            self.waiting = self.waiting[len(waiting) :]
        if touched:
            self.touched_at = now

    async def end(self) -> None:
        """Writes what waits, if that is quick."""
        with suppress(TimeoutError, DatabaseError, claims.Lost):
            async with asyncio.timeout(LAST_S):
                await self._write(time())


def _read(*, adopted: bool) -> tuple[list[Spec], list[Alert]]:
    close_old_connections()
    store.close_orphans(time())
    return store.rules(), [] if adopted else store.open_alerts(of_observer=False)


def _write(waiting: list[Transition], touched: Mapping[Key, Track], lease: Lease | None) -> None:
    close_old_connections()
    with claims.fenced(lease):
        if waiting:
            store.write(waiting)
        if touched:
            store.touch(touched)
