"""The JSON API of the registry and its servers. Who asks, and what they may see and do: api_auth.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from ninja import Field, NinjaAPI, Schema

from scheduler_api import access, policies, selectors
from scheduler_api.access import Role
from scheduler_api.api_auth import AUTH, require, server_of
from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.history.api import router as history
from scheduler_api.models import PolicyChange, Server


class Api(NinjaAPI):
    """Answers 401 in JSON where pages would redirect to the login: ninja checks the session itself."""

    def _get_urls(self) -> list[Any]:
        patterns = super()._get_urls()
        for pattern in patterns:
            if isinstance(pattern, URLPattern) and pattern.callback is not None:
                pattern.callback = login_not_required(pattern.callback)
        return patterns


api = Api(title="Slotboard", version="1", auth=AUTH, docs_url=None, openapi_url="openapi.json", urls_namespace="api")


class ServerOut(Schema):
    id: int
    name: str
    kind: str
    base_url: str
    enabled: bool
    health: dict[str, Any] | None = None


class ServerDetail(ServerOut):
    state: dict[str, Any] | None = Field(None, description="docs/protocol.md section 2; null without an observer")


class PolicyIn(Schema):
    set: dict[str, Any] = Field(..., description="policy fields and their new values")
    expected_version: int | None = None
    ttl_s: float | None = Field(None, gt=0, le=86400)
    reason: str = Field(..., min_length=1, max_length=policies.LONGEST_REASON)


class PolicyChangeOut(Schema):
    id: int
    at: datetime
    actor_name: str
    reason: str
    old: dict[str, Any]
    changes: dict[str, Any]
    new: dict[str, Any]
    version: int | None
    effective_from_iteration: int | None
    ttl_s: float | None
    outcome: str
    error: str


def _out(server: Server, state: dict[str, Any] | None) -> dict[str, Any]:
    shown = {name: getattr(server, name) for name in ("id", "name", "kind", "base_url", "enabled")}
    return shown | {"health": state["health"] if state else None}


@api.get("/servers", response=list[ServerOut])
def list_servers(request: HttpRequest) -> list[dict[str, Any]]:
    servers = selectors.list_servers(access.of(request).servers())
    states = selectors.live_states(server.pk for server in servers)
    return [_out(server, states.get(server.pk)) for server in servers]


@api.get("/servers/{server_id}", response=ServerDetail)
def server_detail(request: HttpRequest, server_id: int) -> dict[str, Any]:
    server = server_of(request, server_id)
    state = selectors.live_state(server.pk)
    return _out(server, state) | {"state": state}


@api.patch("/servers/{server_id}/policy", response=PolicyChangeOut)
def switch_policy(request: HttpRequest, server_id: int, body: PolicyIn) -> PolicyChange:
    """Answers with the audit row; 409 carries the policy in force, 422 names the field, 502 says that nothing usable answered."""
    server = server_of(request, server_id)
    user = require(request, Role.OPERATOR, server)
    return policies.switch(
        server,
        body.set,
        actor=user,
        actor_name=user.get_username(),
        reason=body.reason,
        expected_version=body.expected_version,
        ttl_s=body.ttl_s,
    )


@api.get("/servers/{server_id}/policy-changes", response=list[PolicyChangeOut])
def policy_changes(request: HttpRequest, server_id: int, limit: int = 100) -> list[PolicyChange]:
    return selectors.policy_changes(server_of(request, server_id), min(max(limit, 1), 1000))


def _refused(request: HttpRequest, error: SwitchRefused | type[SwitchRefused]) -> HttpResponse:
    assert isinstance(error, SwitchRefused)
    status = error.status if error.status in (409, 422) else 422
    problem = {"error": error.text, "field": error.field, "current": error.current}
    return api.create_response(request, problem, status=status)


def _unreachable(request: HttpRequest, error: ServerUnreachable | type[ServerUnreachable]) -> HttpResponse:
    return api.create_response(request, {"error": str(error)}, status=502)


api.add_router("/servers", history)
api.add_exception_handler(SwitchRefused, _refused)
api.add_exception_handler(ServerUnreachable, _unreachable)
