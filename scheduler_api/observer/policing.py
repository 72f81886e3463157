"""Looks once a second at every watched server's policy: who else changed it, and whether a guard rail is met. Apart from frames.

It needs neither the web process nor the worker. When the observer is gone too, a guarded change's deadline is the net.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import time

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from scheduler_api.frames import State
from scheduler_api.kinds.fields import Json, mapping, number
from scheduler_api.models import Server
from scheduler_api.observer import claims
from scheduler_api.observer.leases import Lease
from scheduler_api.policies import drifting, guarding, guards
from scheduler_api.policies.models import PolicyGuard

logger = logging.getLogger(__name__)

LOOK_S = 1.0
RETRY_S = 5.0
#: A switch is in the stream before its row is in the database: so long a version has to stand before it counts as another's.
GRACE_S = 4.0
#: A server that could not be reached while a guard rail was to put its policy back is tried again.
ATTEMPTS, AGAIN_S = 3, 5.0

type States = Callable[[], Mapping[int, State | None] | None]
#: What of a state tells one policy of a process from another: version, when the process began.
type Print = tuple[int, float | None]


@dataclass(slots=True)
class Policing:
    """`round` does what is due; `run` repeats it."""

    states: States
    lease: Callable[[int], Lease | None]  # of a server, while it is held
    lost: Callable[[Lease], None]  # told of one that does not count any more
    settled: dict[int, Print] = field(default_factory=dict)
    news: dict[int, tuple[Print, float]] = field(default_factory=dict)
    memories: dict[int, guards.Memory] = field(default_factory=dict)
    attempts: dict[int, tuple[int, float]] = field(default_factory=dict)  # by guard: how many, and when the next may be
    failed: bool = False

    async def run(self) -> None:
        """Until cancelled. What fails in it is logged, and it goes on."""
        while True:
            pause = LOOK_S
            try:
                await self.round(time())
                self.failed = False
            except DatabaseError as error:
                pause = RETRY_S
                if not self.failed:
                    logger.warning("Policies cannot be watched; it is tried again: %s", error)
                self.failed = True
            except Exception:
                logger.exception("Policies could not be watched; it goes on.")
            await asyncio.sleep(pause)

    async def round(self, now: float) -> None:
        states = self.states() or {}
        await self._drift(states, now)
        await self._guard(states, now)

    async def _drift(self, states: Mapping[int, State | None], now: float) -> None:
        for server_id, state in states.items():
            found = fingerprint(state)
            if state is None or found is None or self.settled.get(server_id) == found:
                continue
            before, since = self.news.get(server_id, (None, now))
            if before != found:
                self.news[server_id] = (found, now)
                since = now
            if (server_id in self.settled or _just_changed(state)) and now - since < GRACE_S:
                continue
            try:
                await sync_to_async(_look)(server_id, state["policy"], found[1], self.lease(server_id))
            except claims.Lost as lost:
                if lost.lease is not None:
                    self.lost(lost.lease)
                continue  # whoever watches it now looks itself
            self.settled[server_id] = found
        for kept in (self.settled, self.news):
            for gone in kept.keys() - states.keys():
                del kept[gone]

    async def _guard(self, states: Mapping[int, State | None], now: float) -> None:
        watched = await sync_to_async(_watching)()
        self.memories = {guard.pk: self.memories.get(guard.pk, guards.Memory()) for guard in watched}
        for guard in watched:
            state = states.get(guard.server_id)
            version = mapping((state or {}).get("policy")).get("version")
            if version is None or (isinstance(version, int) and version < guard.version):
                continue  # not seen yet
            if version != guard.version:
                continue  # whoever changed it is noted first, and that ends the guard
            conditions = guarding.conditions_of(guard)
            if why := guards.met(conditions, state, guard.changed_at, now, self.memories[guard.pk]):
                await self._pull(guard, why, now)

    async def _pull(self, guard: PolicyGuard, why: str, now: float) -> None:
        made, not_before = self.attempts.get(guard.pk, (0, 0.0))
        if now < not_before:
            return
        done = await sync_to_async(_pull)(guard, why, self.lease(guard.server_id), last=made + 1 >= ATTEMPTS)
        self.attempts = {pk: told for pk, told in self.attempts.items() if pk in self.memories and pk != guard.pk}
        if not done:
            self.attempts[guard.pk] = (made + 1, now + AGAIN_S)


def fingerprint(state: State | None) -> Print | None:
    """None while the state does not tell what the policy is now."""
    if state is None or state["health"]["state"] not in ("up", "not_serving", "sleeping"):
        return None
    policy = mapping(state.get("policy"))
    version = policy.get("version")
    return (version, number(mapping(state.get("info")).get("started_at"))) if isinstance(version, int) else None


def _just_changed(state: State) -> bool:
    """A watching that begins meets a switch of a moment ago before its row, too."""
    changed_at = number(mapping(state.get("policy")).get("changed_at"))
    return changed_at is not None and abs(state["t"] - changed_at) < GRACE_S


def _look(server_id: int, policy: Json, started_at: float | None, lease: Lease | None) -> None:
    close_old_connections()
    with claims.fenced(lease):
        server = Server.objects.filter(pk=server_id).first()
        if server is not None:
            drifting.look(server, policy, started_at)


def _watching() -> list[PolicyGuard]:
    close_old_connections()
    guarding.close_alerts()
    return guarding.watching()


def _pull(guard: PolicyGuard, why: str, lease: Lease | None, *, last: bool) -> bool:
    """The server itself refuses a second revert, by the version; the lease is looked at so that only one tries."""
    close_old_connections()
    return claims.stands(lease) and guarding.pull(guard, why, last=last)
