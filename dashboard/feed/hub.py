"""One subscription for each watched server in this process, whoever many browsers look at it.

A frame is decoded and turned into text once, and every consumer gets the same text: with two hundred viewers that is what the
process would otherwise spend its time on.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Protocol

import redis
from channels.layers import get_channel_layer

from scheduler_api import live, strict_json

logger = logging.getLogger(__name__)

AGAIN_S = 1.0


class Viewer(Protocol):
    def take(self, seq: int, text: str) -> None:
        """A delta, as the browser gets it. Must not wait."""
        ...


class _Room:
    """The viewers of one server; listens from the first to the last of them."""

    def __init__(self, server_id: int) -> None:
        self.viewers: set[Viewer] = set()
        self._group = live.group_name(server_id)
        self._joined = asyncio.Event()
        self._failure: BaseException | None = None
        self._task = asyncio.create_task(self._listen())

    async def joined(self) -> None:
        """Returns once frames are heard. Raises redis.RedisError or OSError when the first attempt to join failed."""
        await self._joined.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _listen(self) -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel()
        try:
            while True:
                try:
                    await layer.group_add(self._group, channel)
                    self._failure = None
                    self._joined.set()
                    while True:
                        self._tell((await layer.receive(channel))["frame"])
                except (redis.RedisError, OSError) as error:
                    self._failure = error
                    self._joined.set()
                    logger.warning("Frames of %s cannot be heard: %s", self._group, error)
                    await asyncio.sleep(AGAIN_S)
        finally:
            with suppress(redis.RedisError, OSError):
                await layer.group_discard(self._group, channel)

    def _tell(self, delta: dict[str, Any]) -> None:
        text = strict_json.dumps({"type": "delta", **delta})
        for viewer in tuple(self.viewers):
            viewer.take(delta["seq"], text)


class Hub:
    """The rooms of one event loop."""

    def __init__(self) -> None:
        self._rooms: dict[int, _Room] = {}

    async def join(self, server_id: int, viewer: Viewer) -> None:
        """Frames come from now on. Raises redis.RedisError or OSError when Valkey cannot be reached."""
        room = self._rooms.get(server_id)
        if room is None:
            room = self._rooms[server_id] = _Room(server_id)
        room.viewers.add(viewer)
        try:
            await room.joined()
        except (redis.RedisError, OSError):
            await self.leave(server_id, viewer)
            raise

    async def leave(self, server_id: int, viewer: Viewer) -> None:
        room = self._rooms.get(server_id)
        if room is None:
            return
        room.viewers.discard(viewer)
        if not room.viewers:
            del self._rooms[server_id]
            await room.close()


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """The running event loop's own."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        for other in [each for each in _hubs if each.is_closed()]:
            del _hubs[other]
        found = _hubs[loop] = Hub()
    return found
