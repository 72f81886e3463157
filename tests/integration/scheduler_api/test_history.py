"""Detail, fairness and history from an observer and a real Valkey to the API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from scheduler_api.models import Rollup
from tests.conftest import client_of
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.stub_servers import FakeEngine, engine_slot, iteration, running
from tests.support.tasks import ended

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


async def get(client: Client, path: str, **query: Any) -> Any:
    response = await sync_to_async(client.get)(f"/api/servers/{path}", query)
    assert response.status_code == 200, response.content
    return response.json()


@pytest.fixture
def client(viewer: User) -> Client:
    return client_of(viewer)


async def test_what_an_engine_told_is_read_back_from_the_detail(client: Client) -> None:
    with running(FakeEngine()) as engine:
        t = time.time() - 3
        engine.slots[1] = engine_slot(
            1, state="generating", task=800, n_prompt=40, submitted_at=t, first_visit_at=t + 1.0, client="chat"
        )
        engine.iterations = [
            iteration(i, t + i / 10, prompt=[[0, 100]] if i < 9 else [], gen=[[1, 1]], ms=90) for i in range(1, 20)
        ]
        engine.tasks = [ended(1, i=8, slot=0, client="doc", submitted_at=t, first_visit_at=t + 0.1, finished_at=t + 0.9)]
        server = await sync_to_async(register)("local", "engine", engine.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: bool((state["fairness"] or {}).get("clients")))
            assert [task["client"] for task in state["tasks"]] == ["doc"]
            shares = {slot["slot"]: slot["share"] for slot in state["fairness"]["slots"]}
            assert shares == {0: pytest.approx(800 / 819, abs=1e-3), 1: pytest.approx(19 / 819, abs=1e-3)}
            live = await get(client, f"{server.pk}/detail", **{"from": t, "to": t + 60})
        after = await get(client, f"{server.pk}/detail", **{"from": t, "to": t + 60})
        fair = await get(client, f"{server.pk}/fairness", **{"from": t, "to": t + 5})
    for found in (live, after):
        assert [each["i"] for each in found["iterations"]] == list(range(1, 20))
        assert [(task["client"], task["finished_at"] is None) for task in found["tasks"]] == [("doc", False), ("chat", True)]
        assert found["cut"] is False
    assert {each["client"]: each["tokens"] for each in fair["clients"]} == {"doc": 800, "chat": 19}
    rollups = [row async for row in Rollup.objects.filter(server=server)]  # two where a minute ended meanwhile
    sums = [sum(getattr(row, name) for row in rollups) for name in ("prompt_tokens", "generated_tokens", "iterations")]
    assert sums == [800, 19, 19]
    assert [row.tasks for row in rollups if row.tasks] == [{"limit": 1}]
    history = await get(client, f"{server.pk}/history")
    assert sum(point["prompt_tokens"] for point in history["points"]) == 800
