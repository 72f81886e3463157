from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio
from channels.layers import get_channel_layer
from django.conf import settings

from scheduler_api import live
from scheduler_api.frames import apply
from scheduler_api.models import Server
from scheduler_api.observer.service import observe

type State = dict[str, Any]


def register(name: str, kind: str, url: str, **more: Any) -> Server:
    return Server.objects.create(name=name, kind=kind, base_url=url, **more)


@dataclass
class Watching:
    """The states that an observer writes, read from Valkey as pages read them."""

    client: redis.asyncio.Redis
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def state(self, server: Server) -> State | None:
        raw = await self.client.get(live.state_key(server.pk))
        return None if raw is None else json.loads(raw, parse_constant=_no_constant)

    async def until(self, server: Server, condition: Callable[[State], bool], timeout: float = 10.0) -> State:
        """The first state that fulfils the condition; AssertionError with the last one otherwise."""
        state: State | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    state = await self.state(server)
                    if state is not None and condition(state):
                        return state
                    await asyncio.sleep(0.03)
        except TimeoutError:
            shown = {name: value for name, value in (state or {}).items() if name not in ("figures", "iterations")}
            raise AssertionError(f"It never came true. The last state: {json.dumps(shown, indent=1)}") from None


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no strict JSON")


@asynccontextmanager
async def observing() -> AsyncIterator[Watching]:
    """An observer of the registry as `manage.py observe` runs it."""
    async with live.async_client(settings.REDIS_URL) as client:
        watching = Watching(client)
        task = asyncio.create_task(observe(settings.REDIS_URL, watching.stop))
        try:
            yield watching
        finally:
            watching.stop.set()
            async with asyncio.timeout(3):
                await task
            await get_channel_layer().flush()


@asynccontextmanager
async def frames_of(server: Server) -> AsyncIterator[list[State]]:
    """The deltas of a server, as they come through its channel group."""
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add(live.group_name(server.pk), channel)
    frames: list[State] = []

    async def collect() -> None:
        while True:
            frames.append((await layer.receive(channel))["frame"])

    task = asyncio.create_task(collect())
    try:
        yield frames
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def carried_on(state: State, frames: list[State]) -> State:
    """The state after the frames that follow it."""
    for frame in frames:
        if frame["seq"] > state["seq"]:
            assert frame["seq"] == state["seq"] + 1
            state = apply(state, frame)
    return state
