"""A stock llama-server, watched by polling: one request at a time, at most four a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic, time
from urllib.parse import quote

import httpx2

from scheduler_api import wire
from scheduler_api.health import Health
from scheduler_api.kinds.base import Condition, Report
from scheduler_api.kinds.llama_state import LlamaReader, NotServing
from scheduler_api.targets import Target

type Read = Callable[[wire.Answer, float], None]

LEAST_GAP_S = 0.25
SILENT_AFTER_S = 5.0
#: A busy server answers when its batch is done, which can take many minutes: giving up would only pile up requests there.
LONGEST_WAIT_S = 3600.0
IDLE_GAP_S = 1.0
LONGEST_QUIET_GAP_S = 600.0
LONGEST_PAUSE_S = 5.0
PROPS_EVERY_S = 30.0
METRICS_EVERY_S = 1.0


@dataclass(slots=True)
class Poller:
    """Sends one request at a time and none sooner than LEAST_GAP_S after the last began; tells when one stays unanswered."""

    client: httpx2.AsyncClient
    base_url: str
    silent_after_s: float
    sent_at: float = -1e9
    answer: wire.Answer | None = None

    async def get(self, path: str) -> AsyncGenerator[Condition, None]:
        """Yields a Condition when the answer is long in coming; then `answer` holds it. Raises NoAnswer."""
        await asyncio.sleep(max(0.0, self.sent_at + LEAST_GAP_S - monotonic()))
        self.sent_at = monotonic()
        self.answer = None
        request = asyncio.ensure_future(wire.fetch(self.client, self.base_url + path))
        try:
            await asyncio.wait({request}, timeout=self.silent_after_s)
            if not request.done():
                yield Condition(Health.SILENT, detail=f"{path.partition('?')[0]} is not answered yet", seen=False)
            self.answer = await request
        finally:
            if not request.done():
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)


@dataclass(slots=True)
class _Due:
    """When something is to be asked next, on the monotonic clock."""

    every_s: float
    at: float = 0.0

    def now(self) -> bool:
        return monotonic() >= self.at

    def later(self, factor: float = 1.0) -> None:
        self.at = monotonic() + self.every_s * factor


@dataclass(slots=True)
class LlamaServerKind:
    """Watches one llama-server. `clock` gives Unix seconds; the server tells no time of its own."""

    clock: Callable[[], float] = time
    silent_after_s: float = SILENT_AFTER_S
    first_pause_s: float = 0.5
    longest_pause_s: float = LONGEST_PAUSE_S
    props: _Due = field(default_factory=lambda: _Due(PROPS_EVERY_S))
    metrics: _Due = field(default_factory=lambda: _Due(METRICS_EVERY_S))
    slots: _Due = field(default_factory=lambda: _Due(IDLE_GAP_S))

    async def watch(self, target: Target, *, quiet: bool) -> AsyncGenerator[Report, None]:
        reader = LlamaReader(key_given=bool(target.api_key), quiet=quiet)
        pause = self.first_pause_s
        async with wire.async_client(target, LONGEST_WAIT_S) as client:
            poller = Poller(client, target.base_url, self.silent_after_s)
            while True:
                try:
                    async with aclosing(self._serving(poller, reader)) as reports:
                        async for report in reports:
                            pause = self.first_pause_s
                            yield report
                except wire.NoAnswer as failure:
                    silent = failure.failure == "timeout" and failure.text == "no answer in time"
                    yield Condition(Health.SILENT if silent else Health.DOWN, failure.text, seen=False)
                except NotServing as stop:
                    yield stop.condition
                await asyncio.sleep(pause)
                pause = min(self.longest_pause_s, pause * 2)

    async def _serving(self, poller: Poller, reader: LlamaReader) -> AsyncGenerator[Report, None]:
        """From the first sign of life until something goes wrong. Raises NoAnswer or NotServing."""
        async for report in self._ask(poller, "/health", reader.health):
            yield report
        self.props.at = self.metrics.at = self.slots.at = 0.0
        while True:
            for path, read in self._round(reader):
                async for report in self._ask(poller, path, read):
                    yield report
            yield reader.reading(self.clock())
            await asyncio.sleep(self._until_next(reader))

    def _round(self, reader: LlamaReader) -> Iterator[tuple[str, Read]]:
        """What to ask now, decided anew after each answer."""
        metrics_due = reader.wants_metrics and self.metrics.now()
        slots_due = reader.wants_slots and (reader.expects_work or self.slots.now())
        if self.props.now() or (reader.must_not_wake and (metrics_due or slots_due)):
            yield "/props", reader.props
            self.props.later(0.1 if reader.asleep else 1.0)
        if reader.wants_metrics and metrics_due:
            yield "/metrics", reader.metrics
            self.metrics.later()
        if reader.wants_slots and (reader.expects_work or slots_due):
            yield "/slots", reader.slots
            self.slots.later(reader.idle_factor)

    def _until_next(self, reader: LlamaReader) -> float:
        """Zero while slots work: the poller itself keeps to four a second."""
        if reader.wants_slots and reader.expects_work:
            return 0.0
        due = [self.props.at] + ([self.metrics.at] if reader.wants_metrics else [])
        due += [self.slots.at] if reader.wants_slots else []
        return min(IDLE_GAP_S, max(0.05, min(due) - monotonic()))

    async def _ask(self, poller: Poller, path: str, read: Read) -> AsyncGenerator[Report, None]:
        async with aclosing(poller.get(quote(path))) as waiting:
            async for condition in waiting:
                yield condition
        if poller.answer is not None:
            read(poller.answer, self.clock())
