"""A WebSocket client that speaks ASGI to an application directly: no sockets, but every message and close code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

type Asgi = Callable[..., Any]


class AsgiSocket:
    """`async with` opens it. `sent` holds all that the application sent; `next` takes the next of these not taken yet.

    While `flowing` is cleared, sending to it waits, as it does to a socket whose buffer is full.
    """

    def __init__(self, application: Asgi, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        self._application = application
        self._scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": []}
        self._to_application: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._taken = 0
        self.sent: list[dict[str, Any]] = []
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def __aenter__(self) -> AsgiSocket:
        self._to_application.put_nowait({"type": "websocket.connect"})
        self._task = asyncio.create_task(self._application(self._scope, self._to_application.get, self._take))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.flowing.set()
        self._to_application.put_nowait({"type": "websocket.disconnect", "code": 1000})
        async with asyncio.timeout(5):
            await self._task

    async def _take(self, message: dict[str, Any]) -> None:
        await self.flowing.wait()
        self.sent.append(message)

    def send(self, text: str | None = None, data: bytes | None = None) -> None:
        self._to_application.put_nowait({"type": "websocket.receive", "text": text, "bytes": data})

    async def until(self, condition: Callable[[], bool], timeout: float = 5.0) -> None:
        """Raises TimeoutError; raises what the application raised."""
        async with asyncio.timeout(timeout):
            while not condition():
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    async def next(self, timeout: float = 5.0) -> dict[str, Any]:
        await self.until(lambda: len(self.sent) > self._taken, timeout)
        self._taken += 1
        return self.sent[self._taken - 1]

    async def next_json(self, timeout: float = 5.0) -> dict[str, Any]:
        """The next message as JSON; the acceptance is passed over."""
        message = await self.next(timeout)
        while message["type"] == "websocket.accept":
            message = await self.next(timeout)
        value: dict[str, Any] = json.loads(message["text"])
        return value

    async def is_quiet(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return len(self.sent) == self._taken

    def messages(self) -> list[dict[str, Any]]:
        """All that was sent as JSON, taken or not."""
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]
