"""The observer: one task for each server that it has the lease of, kept in step with the registry and with other observers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from scheduler_api.frames import State
from scheduler_api.models import Server
from scheduler_api.observer.alerting import Lookout
from scheduler_api.observer.holding import Holder
from scheduler_api.observer.leases import ALERTS, Lease, of_server
from scheduler_api.observer.overview import Overview
from scheduler_api.observer.policing import Policing
from scheduler_api.observer.publisher import Publisher, publisher
from scheduler_api.observer.sharing import share
from scheduler_api.observer.watch import ServerWatch

logger = logging.getLogger(__name__)

REGISTRY_S = 1.0
STOP_S = 1.5

type Fingerprint = tuple[str, str, str, str, str, bool]


def enabled_servers() -> list[Server]:
    close_old_connections()
    return list(Server.objects.filter(enabled=True))


def fingerprint(server: Server) -> Fingerprint:
    """What makes it another server to watch."""
    return (server.name, server.kind, server.base_url, server.api_key, server.model, server.quiet)


@dataclass(slots=True)
class _Watched:
    fingerprint: Fingerprint
    watch: ServerWatch
    task: asyncio.Task[None]


@dataclass(slots=True)
class Observer:
    publisher: Publisher
    watched: dict[int, _Watched] = field(default_factory=dict)
    servers: dict[int, Server] | None = None  # the registry as last read
    lookout: Lookout | None = None  # while it looks after the alerts
    alerting: list[asyncio.Task[None]] = field(default_factory=list)
    holder: Holder = field(init=False)

    def __post_init__(self) -> None:
        self.holder = Holder(self.publisher.leases)

    async def run(self) -> None:
        """Until cancelled; then ends its tasks, and gives up what it watched."""
        policies = asyncio.create_task(Policing(self._states, self._lease, self.publisher.leases.forget).run(), name="policies")
        holding = asyncio.create_task(self.holder.run(), name="leases")
        try:
            while True:
                await self._step()
                await asyncio.sleep(REGISTRY_S)
        finally:
            await _end([policies, *self.alerting, *(watched.task for watched in self.watched.values())])
            if self.lookout is not None:
                await self.lookout.end()
            await _end([holding])
            await self.holder.leave()

    async def _step(self) -> None:
        await self._read_registry()
        if self.servers is None:
            return
        if self.publisher.leases.owner not in self.publisher.leases.observers:
            await self.holder.round()
        await self._drop()
        if self.holder.calm():
            await self._take()
            await self._lead()

    async def _read_registry(self) -> None:
        try:
            self.servers = {server.pk: server for server in await sync_to_async(enabled_servers)()}
        except DatabaseError as error:
            logger.warning("The registry cannot be read, the servers known so far are watched on: %s", error)
        self.holder.ready = self.servers is not None

    # Which servers

    async def _drop(self) -> None:
        """Ends the watching of what is lost, gone, changed, or more than this observer's share."""
        assert self.servers is not None
        surplus = self._surplus()
        for pk, seen in [*self.watched.items()]:
            server = self.servers.get(pk)
            changed = seen.task.done() or server is None or fingerprint(server) != seen.fingerprint
            lost = self._lease(pk) is None
            if lost or changed or pk in surplus:
                if lost:
                    logger.warning("%s is not watched here any more: the lease was lost.", seen.watch.server.name)
                await _end([self.watched.pop(pk).task])
                if server is None:
                    await self.publisher.remove(pk)
                if server is None or pk in surplus:
                    await self._give_up(pk)

    def _surplus(self) -> set[int]:
        """Those begun last go first."""
        quota = self._quota()
        return set() if quota is None else set([*self.watched][quota:])

    def _quota(self) -> int | None:
        leases = self.publisher.leases
        return share(len(self.servers or ()), leases.observers, leases.owner)

    async def _take(self) -> None:
        assert self.servers is not None
        quota = self._quota()
        for pk, server in self.servers.items():
            if pk in self.watched or not (self._lease(pk) or await self._acquire(pk, quota)):
                continue
            watch = ServerWatch(server, self.publisher)
            task = asyncio.create_task(watch.run(), name=f"watch {server.name}")
            self.watched[pk] = _Watched(fingerprint(server), watch, task)
            logger.info("%s is watched here from now on.", server.name)

    async def _acquire(self, pk: int, quota: int | None) -> bool:
        if quota is None or len(self.watched) >= quota or self.publisher.leases.holds(of_server(pk)):
            return False
        return await self.holder.acquire(of_server(pk))

    async def _give_up(self, pk: int) -> None:
        if (lease := self._lease(pk)) is not None:
            await self.holder.release(lease)

    def _lease(self, pk: int) -> Lease | None:
        return self.publisher.leases.lease(of_server(pk))

    def _states(self) -> dict[int, State | None]:
        """What was published last of the servers watched here, by id."""
        return {pk: watched.watch.published for pk, watched in self.watched.items()}

    # What one observer does for all

    async def _lead(self) -> None:
        """Looks after the alerts of all servers, if no other observer does."""
        leads = self.publisher.leases.holds(ALERTS)
        if self.alerting and not leads:
            await _end(self.alerting)
            self.lookout, self.alerting = None, []
        if not self.alerting and (leads or await self.holder.acquire(ALERTS)):
            overview = Overview(self._states, lambda: self.servers, self.publisher)
            self.lookout = Lookout(overview.states, lambda: self.publisher.leases.lease(ALERTS), self.publisher.leases.forget)
            named = {"alerts": self.lookout.run(), "what others watch": overview.run()}
            self.alerting = [asyncio.create_task(work, name=name) for name, work in named.items()]


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = [*tasks]
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending, timeout=STOP_S)


async def observe(valkey_url: str, stop: asyncio.Event) -> None:
    """Watches until `stop` is set."""
    async with publisher(valkey_url) as valkey:
        running = asyncio.create_task(Observer(valkey).run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, stopping):
            task.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        with suppress(asyncio.CancelledError):
            await running
