"""Reading a request's body, and noticing that its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope

from engine.delivery import ReaderGone
from engine.http.errors import ApiError

READ_TIMEOUT = "engine.read_timeout"  # seconds, in the scope
MAX_BODY = 64 * 1024 * 1024
LONG_BODY = 8 * 1024  # above it a body is dealt with in a thread: tokenizing 1,000 characters takes about a millisecond


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body; ApiError 413 above MAX_BODY, announced or not, and 408 when it does not come in time."""
    try:
        async with asyncio.timeout(scope.get(READ_TIMEOUT)):
            return await _read_body(scope, receive)
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.") from None


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY:
            raise _too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ReaderGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            raise _too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def read_aside[**P, T](size: int, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`read(*args, **kwargs)`, for a body of `size` bytes: in a thread when it is long, so that others go on meanwhile."""
    if size <= LONG_BODY:
        return read(*args, **kwargs)
    return await asyncio.to_thread(read, *args, **kwargs)


async def watch_client(receive: Receive, gone: Callable[[], None]) -> None:
    """Calls `gone` when the client closes the connection."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone()
            return


def _too_large() -> ApiError:
    return ApiError(413, f"The body is larger than {MAX_BODY // 2**20} MiB.")
