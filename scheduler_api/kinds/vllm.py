"""A vLLM, watched through /metrics: one request at a time, about one a second. Nothing that is asked counts as use there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic, time

from scheduler_api import wire
from scheduler_api.kinds.base import Report
from scheduler_api.kinds.polling import SILENT_AFTER_S, Due, Pace, Poller, again
from scheduler_api.kinds.vllm_state import VllmReader
from scheduler_api.targets import Target

METRICS_EVERY_S = 1.0
HEALTH_EVERY_S = 10.0
NAMES_EVERY_S = 60.0
LONGEST_WAIT_S = 120.0


@dataclass(slots=True)
class VllmKind:
    """Watches one vLLM. `clock` gives Unix seconds; the server tells no time of its own."""

    clock: Callable[[], float] = time
    silent_after_s: float = SILENT_AFTER_S
    first_pause_s: float = 0.5
    metrics_every_s: float = METRICS_EVERY_S

    async def watch(self, target: Target, *, quiet: bool) -> AsyncGenerator[Report, None]:
        reader = VllmReader(key_given=bool(target.api_key))
        async with wire.async_client(target, LONGEST_WAIT_S) as client:
            poller = Poller(client, target.base_url, Pace(), LONGEST_WAIT_S, self.silent_after_s)
            async for report in again(lambda: self._serving(poller, reader), self.first_pause_s):
                yield report

    async def _serving(self, poller: Poller, reader: VllmReader) -> AsyncGenerator[Report, None]:
        """Until something goes wrong. Raises NoAnswer or NotServing."""
        health, names, metrics = Due(HEALTH_EVERY_S), Due(NAMES_EVERY_S), Due(self.metrics_every_s)
        plan = (
            (health, "/health", reader.health),
            (metrics, "/metrics", reader.metrics),
            (names, "/version", reader.version),
            (names, "/v1/models", reader.models),
        )
        while True:
            due = [(each, path, read) for each, path, read in plan if each.now()]
            for each, path, read in due:
                async with aclosing(poller.ask(path, read, self.clock)) as waiting:
                    async for condition in waiting:
                        yield condition
                each.later()
            if due:
                yield reader.reading(self.clock())
            await asyncio.sleep(max(0.05, min(health.at, names.at, metrics.at) - monotonic()))
