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
from engine.http.completions import CompletionRoute
from engine.http.control import ControlRoutes
from engine.http.direct import remember_transport
from engine.http.errors import ApiError
from engine.http.info import InfoRoutes
from engine.http.metrics import MetricsRoute
from engine.http.slots import SlotRoutes
from engine.http.state import ServerState, loading_error

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
    app = Starlette(routes=_routes(state), exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Gate(app, state)


def _routes(state: ServerState) -> list[BaseRoute]:
    info, control = InfoRoutes(state), ControlRoutes(state)
    table: list[tuple[str, str, Endpoint | ASGIApp]] = [
        ("GET", "/health /v1/health", info.health),
        ("GET POST", "/props", info.props),
        ("GET", "/slots", info.slots),
        ("POST", "/slots/{id}", SlotRoutes(state).act),
        ("GET", "/metrics", MetricsRoute(state).metrics),
        ("GET", "/models /v1/models", info.models),
        ("POST", "/tokenize", info.tokenize),
        ("POST", "/detokenize", info.detokenize),
        ("POST", "/apply-template", info.apply_template),
        ("POST", "/completion /completions", CompletionRoute(state, "native")),
        ("POST", "/v1/completions", CompletionRoute(state, "oai")),
        ("POST", "/chat/completions /v1/chat/completions", CompletionRoute(state, "chat")),
        ("GET", "/scheduler", control.scheduler),
        ("PATCH", "/scheduler/policy", control.policy),
        ("GET", "/scheduler/events", control.events),
        ("GET", "/scheduler/iterations", control.iterations),
    ]
    return [Route(path, endpoint, methods=methods.split()) for methods, paths, endpoint in table for path in paths.split()]


class Gate:
    """Before any route: the model must be loaded, then the key must be right; health needs no key."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state
        self._keys = tuple(key.encode() for key in state.options.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal: ApiError | None = None
        if self._state.runner is None:
            refusal = loading_error()
        elif self._keys and scope["path"] not in PUBLIC_PATHS and scope["method"] != "OPTIONS" and not self._knows(scope):
            refusal = ApiError(401, "Invalid API Key")
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        remember_transport(scope, send)
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        """The key from Authorization, with or without Bearer; X-Api-Key counts only when that header is absent."""
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        given = headers.get(b"authorization")
        given = headers.get(b"x-api-key", b"") if given is None else given.removeprefix(b"Bearer ")
        # Every key is compared, so that the time tells neither which key matched nor where one differs.
        return sum(hmac.compare_digest(given, key) for key in self._keys) > 0


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
