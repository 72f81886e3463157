"""Writes down what a server's memory has finished: chunks of detail each second, rollups each minute. Apart from frames."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import time

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections

from scheduler_api.history import store
from scheduler_api.history.detail import Writer
from scheduler_api.history.rollups import Minute
from scheduler_api.observer import claims
from scheduler_api.observer.leases import Lease, of_server
from scheduler_api.observer.memory import Memory
from scheduler_api.observer.publisher import Publisher

logger = logging.getLogger(__name__)

LOOK_S = 1.0
#: After a database that could not be written.
RETRY_S = 15.0
LAST_S = 1.0
UNWRITTEN = "The database cannot be written: history since then is kept here for up to three hours, until it is back."


@dataclass(slots=True)
class Keeper:
    server_id: int
    name: str
    publisher: Publisher
    writer: Writer = field(init=False)
    not_before: float = 0.0
    failed: bool = False

    def __post_init__(self) -> None:
        self.writer = Writer(self.server_id)

    async def run(self, memory: Callable[[], Memory]) -> None:
        """Until cancelled; then what is unfinished is written too, if that is quick."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self.publisher.keep(self.writer, memory().recorder.take_chunks())
                if time() >= self.not_before:
                    await self._write_minutes(memory(), memory().recorder.take_minutes())
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._end(memory())
            raise

    async def _end(self, memory: Memory) -> None:
        memory.recorder.end()
        await self.publisher.keep(self.writer, memory.recorder.take_chunks())
        await self._write_minutes(memory, memory.recorder.take_minutes())

    async def _write_minutes(self, memory: Memory, minutes: list[Minute]) -> None:
        if not minutes:
            return
        if (lease := self.publisher.leases.lease(of_server(self.server_id))) is None:
            memory.recorder.put_back(minutes)
            return
        try:
            await sync_to_async(_write)(self.server_id, minutes, lease)
        except claims.Lost:
            self.publisher.leases.forget(lease)
            return  # another watches it; what was seen here of an unfinished minute goes
        except DatabaseError as error:
            memory.recorder.put_back(minutes)
            memory.missing = {"history": UNWRITTEN}
            self.not_before = time() + RETRY_S
            if not self.failed:
                logger.warning("The history of %s cannot be written; it is tried again: %s", self.name, error)
            self.failed = True
            return
        if self.failed:
            logger.info("The history of %s is written again.", self.name)
        self.failed, memory.missing = False, {}


def _write(server_id: int, minutes: list[Minute], lease: Lease) -> None:
    close_old_connections()
    with claims.fenced(lease):
        store.write(server_id, minutes, time())
