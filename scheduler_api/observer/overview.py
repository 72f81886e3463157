"""The last states of all servers, for what looks at all of them: one's own from memory, those that others watch from Valkey."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from scheduler_api.frames import State
from scheduler_api.observer.publisher import Publisher

logger = logging.getLogger(__name__)

READ_S = 1.0


@dataclass(slots=True)
class Overview:
    """`registry`: ids of the servers that are to be watched, None before it was read. No server is asked for anything."""

    own: Callable[[], Mapping[int, State | None]]
    registry: Callable[[], Collection[int] | None]
    publisher: Publisher
    others: dict[int, State] = field(default_factory=dict)
    read: bool = False

    async def run(self) -> None:
        """Until cancelled. What fails in it is logged, and it goes on."""
        while True:
            try:
                await self.look()
            except Exception:
                logger.exception("What other observers see could not be read; it goes on.")
            await asyncio.sleep(READ_S)

    async def look(self) -> None:
        registry = self.registry()
        if registry is not None:
            ids = [pk for pk in registry if pk not in self.own()]
            self.others = await self.publisher.watched_elsewhere(ids) if ids else {}
            self.read = True

    def states(self) -> dict[int, State | None] | None:
        """By server id, None for one that nobody is known to watch. None before everything was read once."""
        registry = self.registry()
        if registry is None or not self.read:
            return None
        own = self.own()
        return {pk: own[pk] if pk in own else self.others.get(pk) for pk in registry}
