"""Asking a server that has no event stream: one request at a time, none sooner than its turn, bounded in time and bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic

import httpx2

from scheduler_api import wire
from scheduler_api.health import Health
from scheduler_api.kinds.base import Condition, Report

type Read = Callable[[wire.Answer, float], None]

LEAST_GAP_S = 0.25
SILENT_AFTER_S = 5.0


@dataclass(slots=True)
class Pace:
    """Turns at one address, LEAST_GAP_S apart; pollers of several models behind one address share it."""

    least_gap_s: float = LEAST_GAP_S
    next_at: float = 0.0

    async def turn(self) -> None:
        now = monotonic()
        mine = max(now, self.next_at)
        self.next_at = mine + self.least_gap_s
        if mine > now:
            await asyncio.sleep(mine - now)


@dataclass(slots=True)
class Due:
    """When something is to be asked next, on the monotonic clock."""

    every_s: float
    at: float = 0.0

    def now(self) -> bool:
        return monotonic() >= self.at

    def later(self, factor: float = 1.0) -> None:
        self.at = monotonic() + self.every_s * factor


@dataclass(slots=True)
class Poller:
    """Sends one request at a time and tells when one stays unanswered. `longest_s` bounds an answer as a whole.

    `query` is added to each path: a router's models are told apart by it.
    """

    client: httpx2.AsyncClient
    base_url: str
    pace: Pace
    longest_s: float
    silent_after_s: float = SILENT_AFTER_S
    query: str = ""
    answer: wire.Answer | None = None

    async def ask(self, path: str, read: Read, clock: Callable[[], float]) -> AsyncGenerator[Report, None]:
        """Yields a Condition when the answer is long in coming; then `read` gets it, with the time. Raises NoAnswer."""
        async with aclosing(self._get(path)) as waiting:
            async for condition in waiting:
                yield condition
        if self.answer is not None:
            read(self.answer, clock())

    async def _get(self, path: str) -> AsyncGenerator[Condition, None]:
        await self.pace.turn()
        self.answer = None
        request = asyncio.ensure_future(self._fetch(path))
        try:
            await asyncio.wait({request}, timeout=self.silent_after_s)
            if not request.done():
                yield Condition(Health.SILENT, detail=f"{path} is not answered yet", seen=False)
            self.answer = await request
        finally:
            if not request.done():
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

    async def _fetch(self, path: str) -> wire.Answer:
        try:
            async with asyncio.timeout(self.longest_s):
                return await wire.fetch(self.client, f"{self.base_url}{path}{self.query}")
        except TimeoutError:
            raise wire.NoAnswer("timeout", wire.LATE) from None


def condition_of_failure(failure: wire.NoAnswer) -> Condition:
    """Connected but no answer is a busy server; anything else is one that is down."""
    silent = failure.failure == "timeout" and failure.text == wire.LATE
    return Condition(Health.SILENT if silent else Health.DOWN, "" if silent else failure.text, seen=False)
