"""Answers for pages of other origins: what a browser may show them."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import Message, Send

from engine.options_server import Cors

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed_origin(cors: Cors, origin: str) -> str:
    """The origin itself where it may read answers (with any origin allowed and no credentials: `*`), else nothing."""
    if "*" in cors.origins:
        return origin if cors.credentials else "*"
    if origin.rstrip("/") in cors.origins or ("localhost" in cors.origins and _is_local(origin)):
        return origin
    return ""


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _LOCAL
    except ValueError:
        return False


def cors_headers(cors: Cors, origin: str, *, preflight: bool) -> list[tuple[bytes, bytes]]:
    allowed = allowed_origin(cors, origin)
    if not allowed:
        return []
    headers = {"access-control-allow-origin": allowed, "vary": "Origin"}
    if cors.credentials:
        headers["access-control-allow-credentials"] = "true"
    if preflight:
        headers |= {"access-control-allow-methods": cors.methods, "access-control-allow-headers": cors.headers}
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_more


async def send_preflight(send: Send, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0"), *headers]})
    await send({"type": "http.response.body", "body": b""})
