"""The form of a new experiment before servers that answer as a test wants: fixtures and readers, for tests to import."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from scheduler_api.models import Server, ServerKind
from tests.support.sample_states import FakeServer
from workers import experiments as services
from workers import preflight
from workers.load.dialects import Abilities
from workers.survey import Survey

SENT = {"scenario": "cancel-storm", "repetitions": "3", "scale": "0.5", "shards": "1", "seed": "7", "wait": "yes"}


@pytest.fixture
def stock() -> Server:
    return Server.objects.create(name="stock", kind=ServerKind.LLAMA_SERVER, base_url="http://127.0.0.1:8081")


@pytest.fixture(autouse=True)
def observed(server: Server, stock: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {
        server.pk: FakeServer(server.pk, server.name).play(3).state(),
        stock.pk: FakeServer(stock.pk, stock.name, kind="llama_server").play(3).state(),
    }
    monkeypatch.setattr("scheduler_api.selectors.live_states", lambda ids: {pk: states[pk] for pk in ids if pk in states})


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the servers answer when they are asked what they can do, and the runs that were sent to workers."""

    def survey(server: Server, *, adapters: bool = False) -> Survey:
        engine = server.kind == ServerKind.ENGINE
        can = Abilities(
            "A server", token_ids=True, pins=engine, labels=engine, switches=engine, adapters=0, n_slots=4, n_ctx=8192
        )
        return Survey(can, policy={"version": 1} if engine else None)

    sent: list[int] = []
    monkeypatch.setattr(preflight, "survey", survey)
    monkeypatch.setattr("scheduler_api.policies.dry_run", lambda *_: None)
    monkeypatch.setattr(services, "send", lambda run: sent.append(run.pk))
    return sent


def form(client: Client, **query: Any) -> str:
    response = client.get(reverse("experiment-new"), query)
    assert response.status_code == 200
    return response.text


def check(client: Client, **query: Any) -> str:
    return client.get(reverse("experiment-check"), {**SENT, **query}).text
