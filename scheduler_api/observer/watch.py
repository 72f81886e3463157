"""One server's task: follow it, keep its board, publish frames at most every FRAME_S."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic, time

from asgiref.sync import sync_to_async

from scheduler_api import kinds
from scheduler_api.frames import State, diff, is_empty
from scheduler_api.health import Health
from scheduler_api.kinds.base import Condition
from scheduler_api.models import PolicyChange, PolicyOutcome, Server
from scheduler_api.observer.board import Board, Identity
from scheduler_api.observer.keeper import Keeper
from scheduler_api.observer.publisher import Publisher
from scheduler_api.policies import target_of

logger = logging.getLogger(__name__)

FRAME_S = 0.25
RENEW_S = 20.0  # a state that does not change is written again before it expires
CRASH_PAUSE_S = 2.0
FAILED = "The observer failed on this server's answers; it tries again"
#: A switch is in the stream before its audit row is written: when to look for the row.
AUTHOR_LOOKS_S = (0.3, 1.0, 3.0, 8.0)
_AUTHOR_WITHIN = timedelta(seconds=60)


@dataclass(slots=True)
class ServerWatch:
    """Runs until cancelled. What goes wrong in it is logged and shown on the server's page, and it begins anew."""

    server: Server
    publisher: Publisher
    frame_s: float = FRAME_S
    idle_s: float = 1.0
    board: Board = field(init=False)
    keeper: Keeper = field(init=False)
    published: State | None = None
    written_at: float = 0.0
    looked_up: set[float] = field(default_factory=set)
    lookups: set[asyncio.Task[None]] = field(default_factory=set)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.board = self._fresh_board()
        self.keeper = Keeper(self.server.pk, self.server.name, self.publisher)

    def _fresh_board(self) -> Board:
        identity = Identity(self.server.pk, self.server.name, self.server.kind, self.server.base_url)
        return Board(identity, self.publisher.leases.owner.name)

    async def run(self) -> None:
        self.published = await self.publisher.stored(self.server.pk)
        if self.published is not None:
            self.board.restore(self.published)
            self.looked_up = {mark["t"] for mark in self.board.marks}
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow())
                    tasks.create_task(self._publish())
                    tasks.create_task(self.keeper.run(lambda: self.board.memory))
            except* Exception as crash:
                logger.exception("Watching %s failed; it begins anew.", self.server.name, exc_info=crash)
            await self._show_crash()

    async def _show_crash(self) -> None:
        marks = self.board.marks
        self.board = self._fresh_board()
        self.board.marks = marks
        self.board.apply(
            Condition(Health.UNKNOWN, "The observer failed on this server's answers; it tries again", seen=False), time()
        )
        try:
            await self._frame()
        except Exception:
            logger.exception("The failure on %s could not be shown.", self.server.name)
        await asyncio.sleep(CRASH_PAUSE_S)

    async def _follow(self) -> None:
        watcher = kinds.observed(self.server.kind, self.server.model)
        async with aclosing(watcher.watch(target_of(self.server), quiet=self.server.quiet)) as reports:
            async for report in reports:
                self.board.apply(report, time())
                self.news.set()
                self._look_for_authors()

    async def _publish(self) -> None:
        """A frame at once after news, unless the last was less than `frame_s` ago; without it every `idle_s`, since ages grow.

        The first one waits for the first news, within reason: a server that was handed over is not shown as unknown meanwhile.
        """
        next_at = 0.0
        with suppress(TimeoutError):
            await asyncio.wait_for(self.news.wait(), self.idle_s)
        while True:
            if (pause := next_at - monotonic()) > 0:
                await asyncio.sleep(pause)
            self.news.clear()
            next_at = monotonic() + self.frame_s
            await self._frame()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), self.idle_s)

    async def _frame(self) -> None:
        now = time()
        before = self.published
        # Without an earlier state the number comes from the clock, so that no reader takes the frame for the next of another's.
        state = self.board.state(now, before["seq"] + 1 if before is not None else int(now))
        delta = diff(before, state) if before is not None else None
        if delta is not None and is_empty(delta) and now - self.written_at < RENEW_S:
            return
        if await self.publisher.write(self.server.pk, state, delta):
            self.written_at = now
        self.published = state

    def _look_for_authors(self) -> None:
        for mark in self.board.marks:
            if mark["kind"] == "policy" and mark["t"] not in self.looked_up:
                self.looked_up.add(mark["t"])
                task = asyncio.create_task(self._find_author(mark["version"]))
                self.lookups.add(task)
                task.add_done_callback(self.lookups.discard)

    async def _find_author(self, version: int) -> None:
        for pause in AUTHOR_LOOKS_S:
            await asyncio.sleep(pause)
            try:
                name = await sync_to_async(author_of)(self.server.pk, version)
            except Exception as error:
                logger.warning("Who switched %s could not be looked up: %s", self.server.name, error)
                continue
            if name:
                self.board.name_author(version, name)
                self.news.set()
                return


def author_of(server_id: int, version: int) -> str:
    """Who asked for a policy version just now, from the audit; "" when no row tells."""
    since = datetime.now(UTC) - _AUTHOR_WITHIN
    rows = PolicyChange.objects.filter(server_id=server_id, version=version, outcome=PolicyOutcome.APPLIED, at__gte=since)
    return rows.values_list("actor_name", flat=True).first() or ""
