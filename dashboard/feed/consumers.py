"""A server's live state on its way to one browser (docs/protocol.md section 3).

Frames arrive from the hub as text and wait in an outbox that has a bound, and a task of its own sends them: a browser that reads
slowly loses frames and gets a snapshot, and delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from time import time
from typing import Any, ClassVar

import redis
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings

from dashboard.feed.guard import guard
from dashboard.feed.hub import hub
from dashboard.people import links, sockets
from dashboard.people.sockets import Refused
from scheduler_api import live, strict_json

logger = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013

OUTBOX = 12
LONGEST_MESSAGE = 1000
NO_OBSERVER = "No observer watches this server; live values appear here as soon as one runs."
STOPPED = "The observer has stopped writing; what is shown is the last it wrote."
NO_VALKEY = "Valkey cannot be reached, so there are no live values; this page tries again."


class ServerFeed(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # channels carries no types
    #: Seconds without a frame after which the stored state is looked at; while stale it is looked at every `recheck_s`.
    watch_s: ClassVar[float] = 5.0
    recheck_s: ClassVar[float] = 1.0
    old_s: ClassVar[float] = 15.0
    #: Who is let in: (scope, the route's number) -> Ticket, or Refused.
    allowed = staticmethod(sockets.for_person)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        except (redis.RedisError, OSError) as error:
            logger.warning("A live page cannot be served: %s", error)
            with suppress(Exception):  # the browser may be gone, or accepted before
                await send({"type": "websocket.accept"})
            with suppress(Exception):
                await send({"type": "websocket.send", "text": strict_json.dumps({"type": "stale", "text": NO_VALKEY})})
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    async def connect(self) -> None:
        self.sender: asyncio.Task[None] | None = None
        await self.accept()  # a browser is told a close code only once it was let in
        try:
            self.ticket = await database_sync_to_async(self.allowed)(self.scope, self.scope["url_route"]["kwargs"]["pk"])
        except Refused as refused:
            await self.close(refused.code)
            return
        self.server_id = self.ticket.server_id
        self.outbox: deque[tuple[int, str]] = deque()
        self.news = asyncio.Event()
        self.wants_snapshot = True
        self.sent_seq: int | None = None
        self.stale = ""
        await hub().join(self.server_id, self)
        guard().watch(self)
        self.sender = asyncio.create_task(self._send_all())

    async def disconnect(self, code: int) -> None:
        if self.sender is None:
            return
        self.sender.cancel()
        guard().forget(self)
        await hub().leave(self.server_id, self)

    async def end(self, code: int) -> None:
        """From the guard: what let this browser in holds no more. Nothing is sent after it."""
        if self.sender is not None:
            self.sender.cancel()
        await self.close(code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Only {"type": "resync"} means something; anything else is passed over."""
        if self.sender is None or text_data is None or len(text_data) > LONGEST_MESSAGE:
            return
        with suppress(ValueError):
            message = strict_json.loads(text_data)
            if isinstance(message, dict) and message.get("type") == "resync":
                self.wants_snapshot = True
                self.news.set()

    def take(self, seq: int, text: str) -> None:
        """From the hub: a delta, as text."""
        if len(self.outbox) >= OUTBOX:
            self.outbox.clear()
            self.wants_snapshot = True
        else:
            self.outbox.append((seq, text))
        self.news.set()

    @classmethod
    async def encode_json(cls, content: Any) -> str:
        return strict_json.dumps(content)

    # The sending task

    async def _send_all(self) -> None:
        try:
            await self._snapshot()
            while True:
                await self._send_next()
        except OSError:
            pass  # the browser is gone; `disconnect` is on its way
        except Exception:
            logger.exception("Sending to a live page failed.")
            await self.close(1011)

    async def _send_next(self) -> None:
        try:
            async with asyncio.timeout(self.recheck_s if self.stale else self.watch_s):
                await self.news.wait()
        except TimeoutError:
            await self._look()
            return
        self.news.clear()
        if self.wants_snapshot:
            await self._snapshot()
        while self.outbox and not self.wants_snapshot:
            await self._forward(*self.outbox.popleft())

    async def _forward(self, seq: int, text: str) -> None:
        if self.sent_seq is not None and seq <= self.sent_seq:
            return
        if self.sent_seq is None or seq != self.sent_seq + 1:
            await self._snapshot()
            return
        await self.send(text_data=text)
        self.sent_seq, self.stale = seq, ""

    async def _snapshot(self) -> None:
        """Sends the stored state, or that there is none."""
        self.wants_snapshot = False
        state, problem = await self._stored()
        if state is None:
            await self._tell_stale(problem)
            return
        await self.send_json({"type": "snapshot", "state": state})
        self.sent_seq, self.stale = state["seq"], ""
        if time() - state["t"] > self.old_s:
            await self._tell_stale(STOPPED, state["t"])

    async def _look(self) -> None:
        """Nothing came for a while: the observer is gone, or its frames did not get here."""
        state, problem = await self._stored()
        if state is None:
            await self._tell_stale(problem)
        elif state["seq"] != self.sent_seq:
            await self._snapshot()
        elif time() - state["t"] > self.old_s:
            await self._tell_stale(STOPPED, state["t"])

    async def _tell_stale(self, text: str, t: float | None = None) -> None:
        """`t` is when the state that is shown was written; the browser's clock may be another, so its age is told."""
        if text != self.stale:
            self.stale = text
            age = {} if t is None else {"age_s": round(time() - t, 1)}
            await self.send_json({"type": "stale", "text": text, **age})

    async def _stored(self) -> tuple[dict[str, Any] | None, str]:
        """The stored state, else why there is none. A connection of its own: this is rare."""
        try:
            async with live.async_client(settings.REDIS_URL) as client:
                return await live.read_one(client, self.server_id), NO_OBSERVER
        except (redis.RedisError, OSError, ValueError):
            return None, NO_VALKEY


class LinkFeed(ServerFeed):
    """The same for a browser without an account, which a share link let in."""

    allowed = staticmethod(sockets.for_link)

    def take(self, seq: int, text: str) -> None:
        """Of what a link does not show only the observer changes: then a snapshot comes in place of the delta."""
        if '"observer":' in text:
            self.wants_snapshot = True
            self.news.set()
        else:
            super().take(seq, text)

    async def _stored(self) -> tuple[dict[str, Any] | None, str]:
        state, problem = await super()._stored()
        return (links.shown(state) if state is not None else None), problem
