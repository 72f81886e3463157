"""The observer: one task for each enabled server of the registry, kept in step with it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from scheduler_api.frames import State
from scheduler_api.models import Server
from scheduler_api.observer.alerting import Lookout
from scheduler_api.observer.policing import Policing
from scheduler_api.observer.publisher import Publisher, publisher
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


def _differs(server: Server | None, seen: Fingerprint) -> bool:
    return server is None or fingerprint(server) != seen


@dataclass(slots=True)
class _Watched:
    fingerprint: Fingerprint
    watch: ServerWatch
    task: asyncio.Task[None]


@dataclass(slots=True)
class Observer:
    publisher: Publisher
    watched: dict[int, _Watched] = field(default_factory=dict)
    registry_read: bool = False

    async def run(self) -> None:
        """Until cancelled; then ends its tasks."""
        lookout = Lookout(self._states, self.publisher)
        alerts = asyncio.create_task(lookout.run(), name="alerts")
        policies = asyncio.create_task(Policing(self._states).run(), name="policies")
        try:
            while True:
                await self._follow_registry()
                await asyncio.sleep(REGISTRY_S)
        finally:
            await self._end([alerts, policies, *(watched.task for watched in self.watched.values())])
            await lookout.end()

    def _states(self) -> dict[int, State | None] | None:
        """What was published last, by server id; None before the registry was read."""
        if not self.registry_read:
            return None
        return {pk: watched.watch.published for pk, watched in self.watched.items()}

    async def _follow_registry(self) -> None:
        try:
            servers = {server.pk: server for server in await sync_to_async(enabled_servers)()}
        except DatabaseError as error:
            logger.warning("The registry cannot be read, the servers known so far are watched on: %s", error)
            return
        changed = [pk for pk, seen in self.watched.items() if seen.task.done() or _differs(servers.get(pk), seen.fingerprint)]
        await self._end([self.watched.pop(pk).task for pk in changed])
        for pk in set(changed) - servers.keys():
            await self.publisher.remove(pk)
        for pk in servers.keys() - self.watched.keys():
            watch = ServerWatch(servers[pk], self.publisher)
            task = asyncio.create_task(watch.run(), name=f"watch {servers[pk].name}")
            self.watched[pk] = _Watched(fingerprint(servers[pk]), watch, task)
        self.registry_read = True

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)


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
