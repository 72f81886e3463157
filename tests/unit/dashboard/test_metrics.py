"""What Prometheus scrapes of the console: in its own format, for tokens and sessions, of the servers that they may see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from dashboard.people import tokens
from dashboard.people.models import Scope, ServerGroup
from scheduler_api.alerts.models import Alert
from scheduler_api.models import Server
from tests.support.sample_rows import make_run

Show = Callable[[str], Server]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(autouse=True)
def _no_failures_yet() -> None:
    cache.clear()


def scraped(client: Client) -> Samples:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def of(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_it_tells_of_servers_runs_alerts_and_the_trail(operator_client: Client, shown: Show) -> None:
    server = shown("barrier")
    make_run(server, pairs=0)
    make_run(server, pairs=0, state="lost")
    now = timezone.now()
    Alert.objects.create(server=server, kind="down", severity="critical", began_at=now, opened_at=now, last_seen_at=now, text="x")
    found = scraped(operator_client)
    assert of(found, "slotboard_server_health", server=server.name, kind="engine", state="up") == 1
    age = of(found, "slotboard_server_state_age_seconds", server=server.name)
    assert age is not None
    assert age < 60
    assert of(found, "slotboard_runs", state="finished") == 1
    assert of(found, "slotboard_runs", state="lost") == 1
    assert of(found, "slotboard_alerts_open", severity="critical") == 1
    assert of(found, "slotboard_alert_messages_waiting") == 0
    assert of(found, "slotboard_audit_rows") is not None


def test_a_token_of_a_group_reads_of_its_servers_alone(operator: User, shown: Show) -> None:
    inside, outside = shown("barrier"), shown("idle")
    group = ServerGroup.objects.create(name="lab")
    group.servers.add(inside)
    make_run(outside, pairs=0)
    _, secret = tokens.make(operator, "prometheus", Scope.READ, group=group)
    found = scraped(Client(headers={"authorization": f"Bearer {secret}"}))
    names = {dict(labels).get("server") for _, labels in found}
    assert inside.name in names
    assert outside.name not in names
    assert of(found, "slotboard_runs", state="finished") is None


@pytest.mark.django_db
def test_without_a_token_it_says_what_it_needs() -> None:
    for headers in ({}, {"authorization": "Bearer slotboard_wrong"}):
        answer = Client(headers=headers).get("/metrics")
        assert answer.status_code == 401
        assert answer["WWW-Authenticate"] == "Bearer"
        assert "token" in answer.text
