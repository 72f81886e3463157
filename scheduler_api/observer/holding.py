"""Keeps an observer's leases: renewed every second, taken again where Valkey forgot them, in the database while it is away."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from time import time

import redis
from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from scheduler_api import live
from scheduler_api.observer import claims
from scheduler_api.observer.leases import Lease, Leases, clock

logger = logging.getLogger(__name__)

ROUND_S = 1.0
#: How long a round waits for Valkey. With the request in the database that then follows, well within a lease.
ANSWER_S = 2.0

#: After Valkey was away or lost its memory, so long for every observer to come back to what it watches before others take it.
CALM_S = 3.0

AWAY = (redis.RedisError, OSError, TimeoutError)


@dataclass(slots=True)
class Holder:
    leases: Leases
    ready: bool = False
    calm_from: float = 0.0  # by `clock`; infinite while Valkey is away
    _rounds: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Until cancelled. What fails in it is logged, and it goes on."""
        while True:
            try:
                await self.round()
            except Exception:
                logger.exception("Leases could not be kept; it goes on.")
            await asyncio.sleep(ROUND_S)

    async def round(self) -> None:
        async with self._rounds:
            try:
                async with asyncio.timeout(ANSWER_S):
                    forgotten = await self.leases.renew(ready=self.ready)
                    await self.leases.client.set(live.HEARTBEAT_KEY, repr(time()))
            except AWAY as error:
                if self.calm_from != float("inf"):
                    logger.warning(
                        "Leases cannot be renewed, no server is taken up until they can: %s", error or type(error).__name__
                    )
                self.calm_from = float("inf")
                await self._without_valkey()
                return
            if forgotten or self.calm_from == float("inf"):
                self.calm_from = clock() + CALM_S if self.leases.held() else 0.0
            for lease in forgotten:
                await self._again(lease)

    def calm(self) -> bool:
        """Whether Valkey answers, and has for long enough to tell what nobody watches."""
        return clock() >= self.calm_from

    async def acquire(self, what: str) -> bool:
        """Whether it is held now. Nothing is raised: a store that is away grants nothing."""
        return await self._acquire(what, after=None)

    async def _again(self, lease: Lease) -> None:
        """Valkey lost its memory, or this process stood still and nobody took its place: the watching goes on as it was."""
        if not await self._acquire(lease.what, after=lease):
            self.leases.forget(lease)

    async def _acquire(self, what: str, after: Lease | None) -> bool:
        began = clock()
        try:
            async with asyncio.timeout(ANSWER_S):
                lease = await self.leases.take(what)
        except AWAY:
            return after is not None  # whoever had it keeps it as long as it lasts
        if lease is None:
            return False
        entered = False
        try:
            entered = await sync_to_async(_enter)(lease, after)
        except DatabaseError as error:
            logger.warning("Who holds %s could not be written down: %s", what, error)
            return after is not None
        finally:
            if not entered:
                await self.release(lease)
        if entered:
            self.leases.keep(lease, began)
        return entered

    async def release(self, *leases: Lease) -> None:
        for lease in leases:
            self.leases.forget(lease)  # at once, whether or not Valkey answers: then it runs out
        with suppress(*AWAY):
            async with asyncio.timeout(ANSWER_S):
                await self.leases.release(leases)

    async def leave(self) -> None:
        """At the end: gives up everything."""
        await self.release(*self.leases.held())
        with suppress(*AWAY):
            async with asyncio.timeout(ANSWER_S):
                await self.leases.leave()

    async def _without_valkey(self) -> None:
        """Guard rails and history need no Valkey: watching goes on without it, and the database tells others to wait."""
        leases = self.leases.held()
        if not leases or self.leases.least_left() > self.leases.lease_s - 2 * ROUND_S:
            return
        began = clock()
        try:
            standing = await sync_to_async(_go_on)(leases, self.leases.lease_s)
        except DatabaseError as error:
            logger.warning("Valkey is away, and the leases cannot be held in the database: %s", error)
            return
        self.leases.prolong(standing, began)
        for lease in leases:
            if lease.token not in standing:
                self.leases.forget(lease)


def _enter(lease: Lease, after: Lease | None) -> bool:
    close_old_connections()
    return claims.enter(lease, after=after)


def _go_on(leases: list[Lease], seconds: float) -> set[int]:
    close_old_connections()
    return claims.go_on(leases, seconds)
