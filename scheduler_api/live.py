"""Where the latest live state lies in Valkey: written by the observer, read by pages and consumers. Lossy by contract."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import lru_cache
from typing import Any

import redis
import redis.asyncio
from django.conf import settings

STATE_TTL_S = 60
#: Unix seconds of an observer's last round, written every second. It does not expire: how long one is gone is told by it.
HEARTBEAT_KEY = "slotboard:observer"
TIMEOUT_S = 1.0

logger = logging.getLogger(__name__)


def state_key(server_id: int) -> str:
    return f"slotboard:state:{server_id}"


def group_name(server_id: int) -> str:
    """The channel group that a server's frames go to."""
    return f"server.{server_id}"


def encode(value: dict[str, Any]) -> str:
    """Strict JSON: raises ValueError for NaN and Infinity."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)


def client() -> redis.Redis:
    """The one that this process's synchronous code shares."""
    return _client(settings.REDIS_URL)


def read_many(ids: list[int]) -> dict[int, dict[str, Any]]:
    """Parsed states by server id, without those that have none. A dead Valkey reads as no state at all."""
    if not ids:
        return {}
    try:
        values = client().mget([state_key(pk) for pk in ids])
    except redis.RedisError as error:
        logger.warning("Live states cannot be read: %s", error)
        return {}
    return {pk: json.loads(value) for pk, value in zip(ids, values, strict=True) if value is not None}


def async_client(url: str) -> redis.asyncio.Redis:
    """One for each event loop; the caller closes it."""
    return redis.asyncio.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)


async def read_one(client: redis.asyncio.Redis, server_id: int) -> dict[str, Any] | None:
    """None without an observer. Raises redis.RedisError or OSError when Valkey cannot be reached."""
    value = await asyncio.wait_for(client.get(state_key(server_id)), TIMEOUT_S * 2)
    return None if value is None else json.loads(value)
