"""The ASGI application: routes, keys, and errors in one shape."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from engine.delivery import ReaderGone
from engine.http.adapters import AdapterRoutes
from engine.http.body import READ_TIMEOUT
from engine.http.completions import CompletionRoute
from engine.http.control import ControlRoutes
from engine.http.cors import cors_headers, send_preflight, with_headers
from engine.http.direct import remember_transport
from engine.http.errors import ApiError
from engine.http.files import FileRoutes
from engine.http.info import InfoRoutes
from engine.http.metrics import MetricsRoute
from engine.http.slots import SlotRoutes
from engine.http.state import ServerState, loading_error
from engine.http.vectors import VectorRoute

log = logging.getLogger("engine.http")

PUBLIC_PATHS = frozenset({"/health", "/v1/health"})

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(state: ServerState) -> ASGIApp:
    handlers: Mapping[Any, ExceptionHandler] = {
        ApiError: _api_error,
        HTTPException: _http_error,
        ReaderGone: _gone,
        Exception: _fault,
    }
    app = Starlette(routes=routes_of(state), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Gate(app, state)


def routes_of(state: ServerState) -> list[BaseRoute]:
    info, control, adapters, files = InfoRoutes(state), ControlRoutes(state), AdapterRoutes(state), FileRoutes(state)
    table: list[tuple[str, str, Endpoint | ASGIApp]] = [
        ("GET", "/health /v1/health", info.health),
        ("GET POST", "/props", info.props),
        ("GET", "/slots", info.slots),
        ("POST", "/slots/{id}", SlotRoutes(state).act),
        ("GET", "/lora-adapters", adapters.show),
        ("POST", "/lora-adapters", adapters.set),
        ("GET", "/metrics", MetricsRoute(state).metrics),
        ("GET", "/models /v1/models", info.models),
        ("GET", "/v1/models/{name:path}", info.model),
        ("GET", "/models/files", files.files),
        ("GET", "/models/check", files.check),
        ("POST", "/embedding /embeddings", VectorRoute(state, "native")),
        ("POST", "/v1/embeddings", VectorRoute(state, "oai")),
        ("POST", "/rerank /reranking /v1/rerank /v1/reranking", VectorRoute(state, "rerank")),
        ("POST", "/tokenize", info.tokenize),
        ("POST", "/detokenize", info.detokenize),
        ("POST", "/apply-template", info.apply_template),
        ("POST", "/completion /completions", CompletionRoute(state, "native")),
        ("POST", "/infill", CompletionRoute(state, "infill")),
        ("POST", "/v1/completions", CompletionRoute(state, "oai")),
        ("POST", "/chat/completions /v1/chat/completions", CompletionRoute(state, "chat")),
        ("GET", "/scheduler", control.scheduler),
        ("PATCH", "/scheduler/policy", control.policy),
        ("GET", "/scheduler/events", control.events),
        ("GET", "/scheduler/iterations", control.iterations),
        ("GET", "/scheduler/tasks", control.tasks),
    ]
    return [Route(path, endpoint, methods=methods.split()) for methods, paths, endpoint in table for path in paths.split()]


class Gate:
    """Before any route: the model must be loaded, then the key must be right; health needs no key.

    A browser's preflight is answered here, whatever its path.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        self._server = state.options.server
        self._keys = tuple(key.encode() for key in state.options.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        remember_transport(scope, send)
        scope[READ_TIMEOUT] = self._server.timeout_s
        origin, preflight = _header(scope, b"origin"), scope["method"] == "OPTIONS"
        headers = cors_headers(self._server.cors, origin.decode("latin-1"), preflight=preflight) if origin else []
        if preflight:
            await send_preflight(send, headers)
            return
        if headers:
            send = with_headers(send, headers)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        if self._server.api_prefix:
            scope["path"] = scope["path"][len(self._server.api_prefix) :]
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        prefix = self._server.api_prefix
        if self._state.runner is None:
            return loading_error()
        if self._keys and scope["path"] not in PUBLIC_PATHS and not self._knows(scope):
            return ApiError(401, "Invalid API Key")
        if prefix and not scope["path"].startswith(prefix + "/"):
            return ApiError(404, "File Not Found")
        return None

    def _knows(self, scope: Scope) -> bool:
        """The key from Authorization, with or without Bearer; X-Api-Key counts only when that header is absent."""
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        given = headers.get(b"authorization")
        given = headers.get(b"x-api-key", b"") if given is None else given.removeprefix(b"Bearer ")
        # Every key is compared, so that the time tells neither which key matched nor where one differs.
        return sum(hmac.compare_digest(given, key) for key in self._keys) > 0


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


async def _api_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, ApiError)
    return exc.response()


async def _http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    if exc.status_code in (404, 405):
        return ApiError(404, "File Not Found").response()
    return ApiError(exc.status_code, exc.detail).response()


async def _fault(request: Request, exc: Exception) -> Response:
    """The server's log has the traceback; the client learns no more than that it was not its fault."""
    return ApiError(500, "Internal error of the server.").response()


async def _gone(request: Request, exc: Exception) -> Response:
    return Response(status_code=499)
