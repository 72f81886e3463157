"""Open sockets are looked at every few seconds: one that is not allowed any more is closed.

One look for all sockets of the process, in a few queries: logging out, a lost role, a revoked link or a deactivated account ends
what was opened before, whichever process it happened in.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Protocol

from channels.db import database_sync_to_async
from django.db import DatabaseError

from dashboard.people import sockets
from dashboard.people.sockets import Ticket

logger = logging.getLogger(__name__)


class Open(Protocol):
    ticket: Ticket

    async def end(self, code: int) -> None: ...


class Guard:
    """The sockets of one event loop; looks while there are any."""

    every_s = 3.0

    def __init__(self) -> None:
        self._open: set[Open] = set()
        self._task: asyncio.Task[None] | None = None
        self._looking = False

    def watch(self, socket: Open) -> None:
        self._open.add(socket)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_again_and_again())

    def forget(self, socket: Open) -> None:
        self._open.discard(socket)
        if not self._open and self._task is not None and not self._looking:
            self._task.cancel()
            self._task = None

    async def _look_again_and_again(self) -> None:
        await asyncio.sleep(self.every_s)
        while self._open:
            self._looking = True
            try:
                await self._look()
            except DatabaseError as error:
                logger.warning("Open live pages could not be looked at: %s", error)
            finally:
                self._looking = False
            await asyncio.sleep(self.every_s)

    async def _look(self) -> None:
        tickets = {socket.ticket for socket in self._open}
        over = await database_sync_to_async(sockets.ended)(tickets)
        for socket in [each for each in self._open if each.ticket in over]:
            self._open.discard(socket)
            with suppress(OSError, RuntimeError):  # the browser may be gone by itself
                await socket.end(over[socket.ticket])


_guards: dict[asyncio.AbstractEventLoop, Guard] = {}


def guard() -> Guard:
    """The running event loop's own."""
    loop = asyncio.get_running_loop()
    found = _guards.get(loop)
    if found is None:
        for other in [each for each in _guards if each.is_closed()]:
            del _guards[other]
        found = _guards[loop] = Guard()
    return found
