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
from scheduler_api.kinds.base import Condition, Reading, Report

type Read = Callable[[wire.Answer, float], None]

LEAST_GAP_S = 0.25
SILENT_AFTER_S = 5.0
LONGEST_PAUSE_S = 5.0
REDIRECTS = "Redirects are not followed; register the final address."


class NotServing(Exception):
    """The server answered, and what it said ends this round of polling."""

    def __init__(self, condition: Condition) -> None:
        super().__init__(condition.reason)
        self.condition = condition


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


def check_welcome(answer: wire.Answer, *, key_given: bool) -> None:
    """Raises NotServing for an answer that sends the observer away."""
    if answer.status in (401, 403):
        reason = "Key not accepted" if key_given else "Key needed"
        raise NotServing(Condition(Health.UNAUTHORISED, reason, answer.error_message()))
    if 300 <= answer.status < 400:
        raise NotServing(Condition(Health.DOWN, "redirects elsewhere", REDIRECTS))


async def again(
    serving: Callable[[], AsyncGenerator[Report, None]],
    first_pause_s: float,
    longest_pause_s: float = LONGEST_PAUSE_S,
) -> AsyncGenerator[Report, None]:
    """Begins anew whenever it goes wrong (NoAnswer, NotServing), with growing pauses, and tells what went wrong."""
    pause = first_pause_s
    while True:
        try:
            async with aclosing(serving()) as reports:
                async for report in reports:
                    pause = first_pause_s if isinstance(report, Reading) else pause
                    yield report
        except wire.NoAnswer as failure:
            yield condition_of_failure(failure)
        except NotServing as stop:
            yield stop.condition
        await asyncio.sleep(pause)
        pause = min(longest_pause_s, pause * 2)
