"""Leases for tests that write as an observer does, without one."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import redis
from asgiref.sync import sync_to_async

from scheduler_api.observer import claims
from scheduler_api.observer.leases import Lease, Leases, Owner, clock, of_server
from scheduler_api.observer.publisher import Publisher

_tokens = itertools.count(1)


def claimed(what: str) -> Lease:
    """A lease that counts in the database; Valkey is not asked."""
    lease = Lease(what, Owner(1, "test:1", "a"), next(_tokens))
    assert claims.enter(lease)
    return lease


async def hold(leases: Leases, what: str) -> Lease:
    """Takes it in Valkey and enters it in the database, as an observer does."""
    began = clock()
    lease = await leases.take(what)
    assert lease is not None
    assert await sync_to_async(claims.enter)(lease)
    leases.keep(lease, began)
    return lease


class HoldingPublisher(Publisher):
    """Holds the lease of every server that it writes, for as long as a test lasts."""

    async def write(self, server_id: int, *told: Any) -> bool:
        self.leases.lease_s = 600.0
        if await super().write(server_id, *told):
            return True
        with suppress(redis.RedisError, OSError):
            if (lease := await self.leases.take(of_server(server_id))) is not None:
                self.leases.keep(lease, clock())
        return await super().write(server_id, *told)
