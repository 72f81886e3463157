"""No request's body is longer than it has reason to be: it ends with 413 before Django, which keeps bodies in files, reads it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from workers.exporting.importing import MOST_BYTES

type Message = Mapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]

#: Forms, scenarios, policies: the longest of them are texts of some hundred kilobytes.
LIMIT = 4 << 20
#: A multipart body around the longest file.
IMPORT_LIMIT = MOST_BYTES + (1 << 16)
IMPORT_PATH = "/experiments/import/"
API_PATH = "/api/"


def limit_of(path: str) -> int:
    return IMPORT_LIMIT if path.endswith(IMPORT_PATH) else LIMIT


class BodyLimit:
    """ASGI. A body whose length is told beforehand is refused at once, another one where it gets too long."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = limit_of(scope["path"])
        if _told_length(scope) > limit:
            await _refuse(send, limit, scope["path"])
            return
        exchange = _Exchange(receive, send, limit, scope["path"])
        await self._app(scope, exchange.receive, exchange.send)


class _Exchange:
    def __init__(self, receive: Receive, send: Send, limit: int, path: str) -> None:
        self._receive, self._send, self._limit, self._path = receive, send, limit, path
        self._length = 0
        self._refused = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._length += len(message.get("body") or b"")
        if self._length <= self._limit:
            return message
        if not self._refused:
            self._refused = True
            await _refuse(self._send, self._limit, self._path)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self._refused:
            await self._send(message)


def _told_length(scope: Mapping[str, Any]) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(value) if value.isdigit() else 0


async def _refuse(send: Send, limit: int, path: str) -> None:
    """In words, and to the API as a problem."""
    told = f"The request is too long: at most {limit >> 20} MB are taken here."
    kind, text = b"text/plain; charset=utf-8", told.encode()
    if API_PATH in path:
        problem = {"type": "about:blank", "title": "Content Too Large", "status": 413, "detail": told}
        kind, text = b"application/problem+json", json.dumps(problem).encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(text)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text})
