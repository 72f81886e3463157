"""A real stall: a long cold prompt on slot 0 in physical order, a short one on slot 1 behind it; then who did it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from tests.conftest import client_of
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.engine import EngineProcess, running_engine

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

ENGINE = ("--parallel", "2", "--ctx-size", "65536", "--no-kv-unified", "--batch-size", "512", "--ubatch-size", "512")
LONG, SHORT = 12_000, 200


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with running_engine(*ENGINE) as process:
        yield process


@pytest.fixture
def client(viewer: User) -> Client:
    return client_of(viewer)


async def complete(url: str, slot: int, n_prompt: int, client: str) -> Any:
    body = {
        "prompt": [100 + (i * 7 + slot) % 90 for i in range(n_prompt)],
        "id_slot": slot,
        "n_predict": 4,
        "ignore_eos": True,
        "client": client,
    }
    async with httpx2.AsyncClient(timeout=90, trust_env=False) as http:
        response = await http.post(url + "/completion", json=body)
        assert response.status_code == 200
        return response.json()


@pytest.mark.model
async def test_who_blocked_a_short_prompt_and_that_rotating_would_not_have(engine: EngineProcess, client: Client) -> None:
    server = await sync_to_async(register)("local", "engine", engine.url)
    async with observing() as watching:
        await watching.until(server, lambda state: state["health"]["state"] == "up")
        began = time.time()
        cold = asyncio.create_task(complete(engine.url, 0, LONG, "long-doc"))
        await watching.until(server, lambda state: state["slots"][0]["state"] == "prompt")
        short = await complete(engine.url, 1, SHORT, "chat")
        await cold
        await watching.until(server, lambda state: len(state["tasks"]) == 2 and state["health"]["text"] == "Idle")
        query = {"slot": "1", "from": str(began), "to": str(time.time())}
        response = await sync_to_async(client.get)(f"/api/servers/{server.pk}/stall", query)
        fair = (await sync_to_async(client.get)(f"/api/servers/{server.pk}/fairness", query)).json()
    history = (await sync_to_async(client.get)(f"/api/servers/{server.pk}/history")).json()
    assert response.status_code == 200, response.content
    found = response.json()
    waited = short["timings"]["wait_ms"] / 1000
    assert found["to"] - found["from"] == pytest.approx(waited, abs=0.05 + waited * 0.05)
    assert found["reason"] == "batch full"
    [blocker] = found["blockers"]
    assert (blocker["slot"], blocker["client"]) == (0, "long-doc")
    assert blocker["share"] > 0.9
    assert found["policy"]["prefill_order"] == "physical"
    elsewhere = {each["policy"]["prefill_order"]: each for each in found["elsewhere"]}
    check = elsewhere["physical"]
    assert check["recorded"]
    print({order: each["wait_s"] for order, each in elsewhere.items()}, check["text"])
    assert abs(check["error"]) < 0.5
    assert elsewhere["rotating"]["wait_s"] < 0.5 * waited
    assert {each["client"]: each["tokens"] for each in fair["clients"]} == {"long-doc": LONG + 3, "chat": SHORT + 3}
    assert fair["max_service_gap_slot"] == 1
    # of a slot's first task it is not known whether it queued: its wait may count from the batch boundary that gave it the slot
    assert fair["max_service_gap_s"] == pytest.approx(found["to"] - found["from"], rel=0.15)
    assert fair["ttft"]["n"] == sum(point["tasks"] for point in history["points"]) == 2
    assert sum(point["prompt_tokens"] for point in history["points"]) == LONG + SHORT
    assert max(point["worst_stall_s"] for point in history["points"]) >= 0.8 * fair["max_service_gap_s"]
    assert "rotating slot 1 would have waited about" in elsewhere["rotating"]["text"]
