"""Writes states and deltas to Valkey, and lives on while it is away: readers see the gap in `seq` and take a snapshot."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import batched

import redis
import redis.asyncio
from channels.layers import get_channel_layer

from scheduler_api import live, strict_json
from scheduler_api.frames import Delta, State
from scheduler_api.history import detail
from scheduler_api.history.chunks import Chunk
from scheduler_api.history.detail import Writer
from scheduler_api.observer.leases import Command, Leases, lease_key, of_server

logger = logging.getLogger(__name__)

PUBLISH_S = 2.0


class Publisher:
    """One for a process. Every method tells of a Valkey that is away by its result, never by raising.

    Writes are those of the server's lease: without it they do nothing.
    """

    def __init__(self, client: redis.asyncio.Redis, leases: Leases | None = None) -> None:
        self._client = client
        self.leases = leases or Leases(client)
        self._layer = get_channel_layer()
        self.away = False

    async def stored(self, server_id: int) -> State | None:
        """What an observer wrote last; None when there is none or it cannot be read."""
        try:
            return await live.read_one(self._client, server_id)
        except (redis.RedisError, OSError, ValueError) as error:
            self._note(error)
            return None

    async def watched_elsewhere(self, ids: Sequence[int]) -> dict[int, State]:
        """The states of those that some observer has a lease of; nothing when they cannot be read."""
        keys = [*(lease_key(of_server(pk)) for pk in ids), *(live.state_key(pk) for pk in ids)]
        try:
            async with asyncio.timeout(PUBLISH_S):
                found = await self._client.mget(keys)
        except (redis.RedisError, OSError) as error:
            self._note(error)
            return {}
        leased = dict(zip(ids, found, strict=False))
        states = dict(zip(ids, found[len(ids) :], strict=True))
        return {pk: json.loads(text) for pk, text in states.items() if text is not None and leased[pk] is not None}

    async def write(self, server_id: int, state: State, delta: Delta | None) -> bool:
        """The state first: whoever takes a snapshot for a delta must find one at least as new."""
        kept: Command = ("SET", live.state_key(server_id), strict_json.dumps(state), "EX", live.STATE_TTL_S)
        try:
            async with asyncio.timeout(PUBLISH_S):
                if not await self.leases.write(of_server(server_id), [kept]):
                    return False
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

        async def put(commands: Sequence[Command]) -> bool:
            return await self.leases.write(of_server(writer.server_id), commands)

        try:
            for chunk in chunks:
                async with asyncio.timeout(PUBLISH_S):
                    await writer.write(self._client, chunk, put)
        except (redis.RedisError, OSError) as error:
            self._note(error)
            return False
        return True

    async def remove(self, server_id: int) -> None:
        try:
            async with asyncio.timeout(PUBLISH_S):
                keys = [live.state_key(server_id), *await detail.keys(self._client, server_id)]
                await self.leases.write(of_server(server_id), [("DEL", *some) for some in batched(keys, 1000)])
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
