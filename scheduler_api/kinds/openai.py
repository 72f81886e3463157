"""Any OpenAI-compatible server, watched by its list of models: one small request every ten seconds, or a minute when quiet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import time

from scheduler_api import wire
from scheduler_api.kinds.base import Report
from scheduler_api.kinds.openai_state import OpenAiReader
from scheduler_api.kinds.polling import SILENT_AFTER_S, Pace, Poller, again
from scheduler_api.targets import Target

LOOK_EVERY_S = 10.0
QUIET_EVERY_S = 60.0
LIMITED_FACTOR = 6.0  # how much more seldom a server is asked that refuses to be asked so often
LONGEST_WAIT_S = 120.0


@dataclass(slots=True)
class OpenAiKind:
    """Watches one server. `model`: the one that experiments name, where it was given with the registration."""

    model: str = ""
    clock: Callable[[], float] = time
    silent_after_s: float = SILENT_AFTER_S
    first_pause_s: float = 0.5
    look_every_s: float = LOOK_EVERY_S

    async def watch(self, target: Target, *, quiet: bool) -> AsyncGenerator[Report, None]:
        reader = OpenAiReader(key_given=bool(target.api_key), wanted=self.model)
        every_s = QUIET_EVERY_S if quiet else self.look_every_s
        async with wire.async_client(target, LONGEST_WAIT_S) as client:
            poller = Poller(client, target.base_url, Pace(), LONGEST_WAIT_S, self.silent_after_s)
            async for report in again(lambda: self._serving(poller, reader, every_s), self.first_pause_s):
                yield report

    async def _serving(self, poller: Poller, reader: OpenAiReader, every_s: float) -> AsyncGenerator[Report, None]:
        """Until something goes wrong. Raises NoAnswer or NotServing."""
        reader.lists = True  # another process may list what the one before it did not
        while True:
            asked = reader.question
            async with aclosing(poller.ask(asked, reader.read, self.clock)) as waiting:
                async for condition in waiting:
                    yield condition
            if reader.question == asked:
                yield reader.reading(self.clock())
                await asyncio.sleep(every_s * (LIMITED_FACTOR if reader.limited else 1.0))
