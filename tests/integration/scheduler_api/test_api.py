from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from scheduler_api import live, strict_json
from scheduler_api.api_limits import CallerLimit
from scheduler_api.models import PolicyChange, Server
from tests.conftest import client_of
from tests.support.stub_servers import FakeEngine, running, unused_port
from tests.support.valkey import ValkeyProcess

BODY = {"set": {"prefill_order": "rotating"}, "reason": "chat waits"}


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with running(FakeEngine()) as server:
        yield server


@pytest.fixture
def server(db: None, engine: FakeEngine) -> Server:
    return Server.objects.create(name="local", kind="engine", base_url=engine.url, api_key="secret")


def patch(client: Client, server: Server, **changes: Any) -> Any:
    return client.patch(f"/api/servers/{server.pk}/policy", {**BODY, **changes}, content_type="application/json")


def test_without_a_login_everything_is_refused(server: Server, client: Client, engine: FakeEngine) -> None:
    for path in ("", f"/{server.pk}", f"/{server.pk}/policy-changes"):
        assert client.get(f"/api/servers{path}").status_code == 401
    assert patch(client, server).status_code == 401
    assert engine.version == 1


def test_a_viewer_reads_and_may_not_switch(server: Server, viewer_client: Client, engine: FakeEngine) -> None:
    assert viewer_client.get(f"/api/servers/{server.pk}").status_code == 200
    assert patch(viewer_client, server).status_code == 403
    assert engine.version == 1
    assert not PolicyChange.objects.exists()


def test_an_operator_switches(server: Server, operator_client: Client, engine: FakeEngine) -> None:
    response = patch(operator_client, server)
    assert response.status_code == 200
    assert response.json()["outcome"] == "applied"
    assert engine.requested == {"prefill_order": "rotating"}
    [row] = operator_client.get(f"/api/servers/{server.pk}/policy-changes").json()["items"]
    assert (row["actor_name"], row["reason"], row["version"]) == ("mira", "chat waits", 2)


def test_a_write_without_csrf_token_is_refused(server: Server, operator: User, engine: FakeEngine) -> None:
    assert patch(client_of(operator, enforce_csrf_checks=True), server).status_code == 403
    assert engine.version == 1


def test_a_conflict_carries_the_policy_in_force(server: Server, operator_client: Client) -> None:
    response = patch(operator_client, server, expected_version=5)
    assert response.status_code == 409
    assert response.json()["current"]["version"] == 1


def test_a_refused_field_is_named(server: Server, operator_client: Client, engine: FakeEngine) -> None:
    engine.patch_answer = 422, {"error": {"message": "no such value", "field": "prefill_order"}}
    response = patch(operator_client, server)
    assert (response.status_code, response.json()["field"]) == (422, "prefill_order")


@pytest.mark.parametrize("changes", [{"reason": ""}, {"ttl_s": -1}, {"set": "x"}])
def test_a_malformed_request_reaches_no_server(server: Server, operator_client: Client, engine: FakeEngine, changes: Any) -> None:
    assert patch(operator_client, server, **changes).status_code == 422
    assert not engine.seen


def test_an_unreachable_server_is_a_bad_gateway(server: Server, operator_client: Client) -> None:
    server.base_url = f"http://127.0.0.1:{unused_port()}"
    server.save()
    response = patch(operator_client, server)
    assert response.status_code == 502
    assert "connection refused" in response.json()["detail"]


def test_an_unknown_server_is_not_found(operator_client: Client) -> None:
    assert operator_client.get("/api/servers/77").status_code == 404


def test_a_key_is_never_shown(server: Server, admin_client: Client) -> None:
    shown = [admin_client.get(f"/api/servers{path}").content for path in ("", f"/{server.pk}")]
    assert all(b"secret" not in body and b"local" in body for body in shown)


def test_the_live_state_is_what_the_observer_wrote(server: Server, viewer_client: Client, valkey: ValkeyProcess) -> None:
    import redis

    assert viewer_client.get(f"/api/servers/{server.pk}").json()["state"] is None
    state = {"seq": 4, "health": {"state": "up", "text": "Idle"}}
    with redis.Redis.from_url(valkey.url) as store:
        store.set(live.state_key(server.pk), strict_json.dumps(state))
    assert viewer_client.get(f"/api/servers/{server.pk}").json()["state"] == state
    [listed] = viewer_client.get("/api/servers").json()["items"]
    assert listed["health"] == state["health"]


def test_a_dead_valkey_reads_as_no_state(server: Server, viewer_client: Client) -> None:
    response = viewer_client.get(f"/api/servers/{server.pk}")
    assert (response.status_code, response.json()["state"]) == (200, None)


def test_requests_are_counted_in_valkey(
    server: Server, viewer_client: Client, valkey: ValkeyProcess, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    monkeypatch.setattr(CallerLimit, "rests_until", 0.0)
    settings.API_READS = 1
    answers = [viewer_client.get("/api/servers") for _ in range(3)]  # of two minutes at most
    late = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(late.headers["Retry-After"]) <= 60
    with redis.Redis.from_url(valkey.url) as store:
        [key, *_] = store.keys("slotboard:api:person:*")
        assert 0 < store.ttl(key) <= 120


def test_the_schema_is_served(viewer_client: Client) -> None:
    schema = json.loads(viewer_client.get("/api/openapi.json").content)
    assert "/api/servers/{server_id}/policy" in schema["paths"]
