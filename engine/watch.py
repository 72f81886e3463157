"""Who waits for a change of the scheduler's state. Costs the loop thread nothing while nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


class Watch:
    """`count` grows with each iteration and each change of state between iterations; the loop thread adds to it."""

    def __init__(self, lock: threading.Lock) -> None:
        self.count = 0
        self._lock = lock
        self.watchers: list[tuple[int, asyncio.Future[None]]] = []

    async def changed(self, since: int) -> None:
        """Returns once `count` is above `since`."""
        watcher = asyncio.get_running_loop().create_future()
        with self._lock:
            if self.count != since:
                return
            self.watchers.append((since, watcher))
        await watcher

    def wake(self, call: Callable[[Callable[[Any], None], Any], None]) -> None:
        """Lets those go on who saw an older count, by `call(function, argument)` on their event loop. Under the lock."""
        due = [watcher for since, watcher in self.watchers if since != self.count]
        if due:
            self.watchers = [entry for entry in self.watchers if entry[0] == self.count]
            call(_resolve, due)


def _resolve(watchers: list[asyncio.Future[None]]) -> None:
    for watcher in watchers:
        if not watcher.done():
            watcher.set_result(None)
