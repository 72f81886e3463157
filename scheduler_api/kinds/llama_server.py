"""A stock llama-server, watched by polling: one request at a time, at most four a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic, time

import httpx2

from scheduler_api import wire
from scheduler_api.kinds.base import Report
from scheduler_api.kinds.llama_router import RouterWatch
from scheduler_api.kinds.llama_state import IsRouter, LlamaReader
from scheduler_api.kinds.polling import LONGEST_PAUSE_S, SILENT_AFTER_S, Due, Pace, Poller, Read, again
from scheduler_api.targets import Target

#: A busy server answers when its batch is done, which can take many minutes: giving up would only pile up requests there.
LONGEST_WAIT_S = 3600.0
IDLE_GAP_S = 1.0
PROPS_EVERY_S = 30.0
METRICS_EVERY_S = 1.0
#: A router's models are asked side by side, each over a connection of its own.
MOST_CONNECTIONS = 33


@dataclass(slots=True)
class ModelWatch:
    """Polls one model behind one address, and decides what is worth asking it when."""

    poller: Poller
    reader: LlamaReader
    clock: Callable[[], float]
    props: Due = field(default_factory=lambda: Due(PROPS_EVERY_S))
    metrics: Due = field(default_factory=lambda: Due(METRICS_EVERY_S))
    slots: Due = field(default_factory=lambda: Due(IDLE_GAP_S))

    async def serving(self) -> AsyncGenerator[Report, None]:
        """Until something goes wrong. Raises NoAnswer, NotServing or IsRouter."""
        self.props.at = self.metrics.at = self.slots.at = 0.0
        self.reader.begin()
        while True:
            for path, read in self._round():
                async with aclosing(self.poller.ask(path, read, self.clock)) as waiting:
                    async for condition in waiting:
                        yield condition
            yield self.reader.reading(self.clock())
            await asyncio.sleep(self._until_next())

    def _round(self) -> Iterator[tuple[str, Read]]:
        """What to ask now, decided anew after each answer."""
        reader = self.reader
        metrics_due = reader.wants_metrics and self.metrics.now()
        slots_due = reader.wants_slots and (reader.expects_work or self.slots.now())
        if self.props.now() or (reader.must_not_wake and (metrics_due or slots_due)):
            yield "/props", reader.props
            self.props.later(0.1 if reader.asleep else 1.0)
            if reader.woke:
                metrics_due, slots_due = reader.wants_metrics, reader.wants_slots
        if reader.wants_metrics and metrics_due:
            yield "/metrics", reader.metrics
            self.metrics.later(reader.metrics_factor)
        if reader.wants_slots and (reader.expects_work or slots_due):
            yield "/slots", reader.slots
            self.slots.later(reader.idle_factor)

    def _until_next(self) -> float:
        """Zero while slots work: the poller itself keeps to four a second."""
        reader = self.reader
        if reader.wants_slots and reader.expects_work:
            return 0.0
        due = [self.props.at] + ([self.metrics.at] if reader.wants_metrics else [])
        due += [self.slots.at] if reader.wants_slots else []
        return min(IDLE_GAP_S, max(0.05, min(due) - monotonic()))


@dataclass(slots=True)
class LlamaServerKind:
    """Watches one llama-server. `clock` gives Unix seconds; the server tells no time of its own."""

    clock: Callable[[], float] = time
    silent_after_s: float = SILENT_AFTER_S
    first_pause_s: float = 0.5
    longest_pause_s: float = LONGEST_PAUSE_S

    async def watch(self, target: Target, *, quiet: bool) -> AsyncGenerator[Report, None]:
        async with wire.async_client(target, LONGEST_WAIT_S, MOST_CONNECTIONS) as client:
            pace = Pace()
            model = self._model(client, target, pace, quiet=quiet)
            router = RouterWatch(
                poller=model.poller,
                key_given=bool(target.api_key),
                clock=self.clock,
                watch_model=lambda query, gently: again(
                    self._model(client, target, pace, quiet=gently, query=query).serving, self.first_pause_s, self.longest_pause_s
                ),
                quiet=quiet,
            )
            async for report in again(lambda: self._serving(model, router), self.first_pause_s, self.longest_pause_s):
                yield report

    def _model(self, client: httpx2.AsyncClient, target: Target, pace: Pace, *, quiet: bool, query: str = "") -> ModelWatch:
        poller = Poller(client, target.base_url, pace, LONGEST_WAIT_S, self.silent_after_s, query)
        return ModelWatch(poller, LlamaReader(key_given=bool(target.api_key), quiet=quiet), self.clock)

    async def _serving(self, model: ModelWatch, router: RouterWatch) -> AsyncGenerator[Report, None]:
        """From the first sign of life until something goes wrong. Raises NoAnswer or NotServing."""
        async for report in model.poller.ask("/health", model.reader.health, self.clock):
            yield report
        try:
            async with aclosing(model.serving()) as reports:
                async for report in reports:
                    yield report
        except IsRouter:
            async with aclosing(router.serving(model.reader.info)) as reports:
                async for report in reports:
                    yield report
