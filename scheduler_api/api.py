"""The JSON API: what holds for all of it, and the servers. Who asks, and what they may see and do: api_auth.py.

Routers of upper layers join it in dashboard/api. docs/api.md is for those who use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path
from ninja import Field, NinjaAPI, Schema
from ninja.openapi.schema import OpenAPISchema
from ninja.pagination import paginate
from ninja.parser import Parser

from scheduler_api import access, api_problems, selectors, strict_json
from scheduler_api.api_alerts import router as alerts
from scheduler_api.api_auth import AUTH, server_of
from scheduler_api.api_limits import CallerLimit
from scheduler_api.api_paging import Pages, Shown
from scheduler_api.api_problems import Refused
from scheduler_api.api_schema import documented, example
from scheduler_api.history.api import router as history
from scheduler_api.models import Server


class StrictParser(Parser):
    """Takes what every JSON reader and every database takes: no NaN or Infinity, no NUL character."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        if b"\\u0000" in request.body or b"\0" in request.body:
            raise ValueError("a NUL character")
        return dict(json.loads(request.body, parse_constant=_no_constant))


def _no_constant(name: str) -> None:
    raise ValueError(name)


class Api(NinjaAPI):
    """Answers 401 in JSON where pages would redirect to the login: ninja checks the session itself. Addresses that there are not,
    and methods that an address does not take, are problems too."""

    _schemas: dict[str, OpenAPISchema]

    def _get_urls(self) -> list[Any]:
        patterns = [*super()._get_urls(), path("<path:rest>", _unknown, name="unknown")]
        for pattern in patterns:
            if isinstance(pattern, URLPattern) and pattern.callback is not None:
                pattern.callback = login_not_required(_with_problems(pattern.callback))
        return patterns

    def get_openapi_schema(self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None) -> OpenAPISchema:
        """Made once: it is public, and making it takes a while."""
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        kept: dict[str, OpenAPISchema] = self.__dict__.setdefault("_schemas", {})
        if prefix not in kept:
            kept[prefix] = super().get_openapi_schema(path_prefix=prefix)
            documented(kept[prefix])
        return kept[prefix]

    def get_openapi_operation_id(self, operation: Any) -> str:
        """The name of the function, which is the name of the address too; each is there once."""
        return str(operation.view_func.__name__)


def _with_problems(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "%00" in request.META.get("QUERY_STRING", ""):
            return api_problems.answer(400, "The query holds a NUL character.", "invalid")
        try:
            response = view(request, *args, **kwargs)
        except Http404:
            return _unknown(request)
        if not isinstance(response, HttpResponseNotAllowed):
            return response
        allowed = response.headers["Allow"]
        return api_problems.answer(405, f"{request.method} is not taken here; {allowed} is.", headers={"Allow": allowed})

    return answer


def _unknown(request: HttpRequest, rest: str = "") -> HttpResponse:
    return api_problems.answer(404, "There is no such address; openapi.json has all of them.")


api = Api(
    title="Slotboard",
    version="1",
    description="Servers, policies, experiments, audit and alerts of the console, for scripts.",
    auth=AUTH,
    throttle=[CallerLimit()],
    parser=StrictParser(),
    docs_url=None,
    openapi_url="openapi.json",
    urls_namespace="api",
)
api_problems.handle(api)

HEALTH = {"state": "up", "text": "Serving", "detail": "", "since": 1764500000.0, "seen_at": 1764500100.2}
STATE = {"seq": 812, "t": 1764500100.3, "health": HEALTH, "queue": {"depth": 2, "oldest_s": 1.2}, "slots": [], "iteration": 4711}
SERVER = {
    "id": 1,
    "name": "local",
    "kind": "engine",
    "model": "",
    "base_url": "http://127.0.0.1:8080",
    "enabled": True,
    "health": HEALTH,
}


class ServerOut(Schema):
    id: int
    name: str
    kind: str = Field(..., description="engine, llama_server, vllm or openai")
    model: str = Field(..., description="the one that was named with the registration, of an OpenAI-compatible server")
    base_url: str
    enabled: bool
    health: dict[str, Any] | None = Field(None, description="docs/protocol.md section 2; null without an observer")

    model_config = example(**SERVER)


class ServerDetail(ServerOut):
    state: dict[str, Any] | None = Field(None, description="docs/protocol.md section 2; null without an observer")

    model_config = example(**SERVER, state=STATE)


class StateOut(Schema):
    """The live state, whole: docs/protocol.md section 2."""

    seq: int
    t: float
    health: dict[str, Any]

    model_config = example(**STATE) | {"extra": "allow"}


def _out(server: Server, state: dict[str, Any] | None) -> dict[str, Any]:
    shown = {name: getattr(server, name) for name in ("id", "name", "kind", "model", "base_url", "enabled")}
    return shown | {"health": state["health"] if state else None}


@api.get("/servers", response=list[ServerOut], summary="The servers that one may see", tags=["servers"])
@paginate(Pages)
def list_servers(request: HttpRequest, name: str = "", kind: str = "") -> Shown[Server]:
    """By name. `name` is the whole of it."""
    rows = access.of(request).servers()
    rows = rows.filter(name=name) if name else rows
    return Shown(rows.filter(kind=kind) if kind else rows, _listed)


def _listed(page: list[Server]) -> list[dict[str, Any]]:
    states = selectors.live_states(server.pk for server in page)
    return [_out(server, states.get(server.pk)) for server in page]


@api.get("/servers/{int:server_id}", response=ServerDetail, summary="A server and its live state", tags=["servers"])
def server_detail(request: HttpRequest, server_id: int) -> dict[str, Any]:
    server = server_of(request, server_id)
    state = selectors.live_state(server.pk)
    return _out(server, state) | {"state": state}


@api.get("/servers/{int:server_id}/state", response=StateOut, summary="The live state alone", tags=["servers"])
def server_state(request: HttpRequest, server_id: int) -> HttpResponse:
    """As the observer wrote it last, at most a quarter of a second ago while there is work. 409 while no observer reports."""
    state = selectors.live_state(server_of(request, server_id).pk)
    if state is None:
        raise Refused(409, "conflict", "No observer reports on this server, so nothing is known of it now.")
    return HttpResponse(strict_json.dumps(state), content_type="application/json")


api.add_router("/servers", history)
api.add_router("/alerts", alerts)
