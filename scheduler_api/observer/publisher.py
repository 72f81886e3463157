"""Writes states and deltas to Valkey, and lives on while it is away: readers see the gap in `seq` and take a snapshot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import redis
import redis.asyncio
from channels.layers import get_channel_layer

from scheduler_api import live, strict_json
from scheduler_api.frames import Delta, State
from scheduler_api.history import detail
from scheduler_api.history.chunks import Chunk
from scheduler_api.history.detail import Writer

logger = logging.getLogger(__name__)

PUBLISH_S = 2.0


class Publisher:
    """One for a process. Every method tells of a Valkey that is away by its result, never by raising."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._layer = get_channel_layer()
        self.away = False

    async def stored(self, server_id: int) -> State | None:
        """What an observer wrote last; None when there is none or it cannot be read."""
        try:
            return await live.read_one(self._client, server_id)
        except (redis.RedisError, OSError, ValueError) as error:
            self._note(error)
            return None

    async def write(self, server_id: int, state: State, delta: Delta | None) -> bool:
        """The state first: whoever takes a snapshot for a delta must find one at least as new."""
        try:
            async with asyncio.timeout(PUBLISH_S):
                await self._client.set(live.state_key(server_id), strict_json.dumps(state), ex=live.STATE_TTL_S)
                if delta is not None:
                    await self._layer.group_send(live.group_name(server_id), {"type": "server.frame", "frame": delta})
        except (redis.RedisError, OSError) as error:
            self._note(error)
            return False
        if self.away:
            logger.info("Valkey is back.")
        self.away = False
        return True

    async def keep(self, writer: Writer, chunks: Sequence[Chunk]) -> bool:
        """Writes chunks of a server's detail."""
        try:
            for chunk in chunks:
                async with asyncio.timeout(PUBLISH_S):
                    await writer.write(self._client, chunk)
        except (redis.RedisError, OSError) as error:
            self._note(error)
            return False
        return True

    async def beat(self, now: float) -> None:
        """Tells that an observer runs."""
        try:
            async with asyncio.timeout(PUBLISH_S):
                await self._client.set(live.HEARTBEAT_KEY, repr(now))
        except (redis.RedisError, OSError) as error:
            self._note(error)

    async def remove(self, server_id: int) -> None:
        try:
            async with asyncio.timeout(PUBLISH_S):
                await self._client.delete(live.state_key(server_id))
                await detail.remove(self._client, server_id)
        except (redis.RedisError, OSError) as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        if not self.away:
            logger.warning("Valkey cannot be reached, live pages stand still until it is back: %s", error or type(error).__name__)
        self.away = True


@asynccontextmanager
async def publisher(url: str) -> AsyncIterator[Publisher]:
    client = live.async_client(url)
    try:
        yield Publisher(client)
    finally:
        await client.aclose()
