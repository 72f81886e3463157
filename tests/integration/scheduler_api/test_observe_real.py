"""The observer against what really serves: this project's engine, and a stock llama-server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from scheduler_api import policies, selectors, servers
from scheduler_api.exceptions import SwitchRefused
from tests.integration.scheduler_api.conftest import carried_on, frames_of, observing
from tests.support.engine import EngineProcess, running_engine
from tests.support.stock import running_stock
from tests.support.valkey import ValkeyProcess

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

ROOT = Path(__file__).resolve().parents[3]
SIMULATED = ("--backend", "simulated", "--parallel", "2", "--ctx-size", "8192", "--no-kv-unified")


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with running_engine(*SIMULATED) as process:
        yield process


async def complete(url: str, slot: int, n_prompt: int, n_predict: int) -> None:
    body = {"prompt": [100 + i % 50 for i in range(n_prompt)], "id_slot": slot, "n_predict": n_predict, "ignore_eos": True}
    async with httpx2.AsyncClient(timeout=60) as client:
        assert (await client.post(url + "/completion", json=body)).status_code == 200


async def test_the_engine_is_watched_at_work(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    assert server.kind == "engine"
    async with observing() as watching:
        first = await watching.until(server, lambda state: state["health"]["text"] == "Idle")
        assert (first["info"]["backend"], first["info"]["kv_mode"]) == ("simulated", "split")
        assert first["switching"]["can"] is True
        async with frames_of(server) as frames:
            work = asyncio.gather(complete(engine.url, 0, 4000, 200), complete(engine.url, 1, 300, 200))
            state = await watching.until(server, lambda state: state["health"]["text"] == "Serving" and bool(state["iterations"]))
            await watching.until(server, lambda state: state["figures"]["gen_tps"] > 0)
            await work
            state = await watching.until(server, lambda state: state["health"]["text"] == "Idle")
            await asyncio.sleep(0.3)
            last = await watching.state(server)
    assert last is not None
    assert carried_on(first, frames)["iterations"] == last["iterations"]
    assert sum(value for _, value in state["figures"]["prompt_series"]) * 2 == pytest.approx(4300, abs=5)
    assert [each["i"] for each in state["iterations"]] == sorted({each["i"] for each in state["iterations"]})


async def test_a_switch_of_the_engine_is_seen_and_named(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    async with observing() as watching:
        await watching.until(server, lambda state: state["policy"] is not None)
        row = await sync_to_async(policies.switch)(
            server, {"prefill_order": "rotating"}, actor=None, actor_name="mira", reason="chat waits"
        )
        assert (row.outcome, row.new["prefill_order"]) == ("applied", "rotating")
        state = await watching.until(server, lambda state: [mark["by"] for mark in state["marks"]] == ["mira"])
        assert "prefill order: physical to rotating" in state["marks"][0]["text"]
        assert state["policy"]["version"] == row.version
        with pytest.raises(SwitchRefused) as refusal:
            await sync_to_async(policies.switch)(
                server, {"prefill_order": "sideways"}, actor=None, actor_name="mira", reason="a typing error"
            )
        assert (refusal.value.status, refusal.value.field) == (422, "prefill_order")
        with pytest.raises(SwitchRefused) as refusal:
            await sync_to_async(policies.switch)(
                server, {"prefill_order": "physical"}, actor=None, actor_name="mira", reason="late", expected_version=0
            )
        assert (refusal.value.status, (refusal.value.current or {})["version"]) == (409, row.version)


async def test_a_restarted_engine_is_noticed(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    port = engine.url.rpartition(":")[2]
    async with observing() as watching:
        await complete(engine.url, 0, 500, 20)
        before = await watching.until(server, lambda state: state["health"]["state"] == "up" and bool(state["iterations"]))
        await asyncio.to_thread(engine.stop)
        down = await watching.until(server, lambda state: state["health"]["state"] == "down")
        assert down["health"]["text"] == "Down: connection refused"
        again = running_engine(*SIMULATED, "--port", port)
        await asyncio.to_thread(again.__enter__)
        try:
            state = await watching.until(server, lambda state: state["health"]["state"] == "up")
        finally:
            await asyncio.to_thread(again.__exit__, None, None, None)
    assert [mark["kind"] for mark in state["marks"]] == ["restart"]
    assert state["seq"] > before["seq"]
    assert all(value is None or value >= 0 for _, value in state["figures"]["gen_series"])


@pytest.mark.model
@pytest.mark.parametrize("metrics", [False, True])
async def test_a_stock_llama_server_shows_its_slots(metrics: bool) -> None:
    with running_stock(metrics=metrics) as url:
        server = await sync_to_async(servers.register)("stock", url)
        assert server.kind == "llama_server"
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["text"] == "Idle")
            assert len(state["slots"]) == 2
            assert state["info"]["n_ctx_slot"] == 8192
            work = asyncio.create_task(complete(url, 1, 600, 3000))
            state = await watching.until(server, lambda state: state["slots"][1]["state"] == "generating")
            assert state["slots"][0]["state"] == "idle"
            state = await watching.until(server, lambda state: state["figures"]["gen_tps"] > 0 and state["slots"][1]["rate"] > 0)
            assert (state["slots"][1]["n_processed"], state["slots"][1]["n_prompt"]) == (600, 600)
            assert state["info"]["slots_shape"] == "is_processing, next_token as a list, prompt counts"
            assert (state["queue"] is not None) is metrics
            assert state["switching"]["why_not"].startswith("This server cannot switch policies")
            await work
            await watching.until(server, lambda state: state["health"]["text"] == "Idle")


def test_the_command_ends_within_two_seconds_of_sigterm(valkey: ValkeyProcess, engine: EngineProcess) -> None:
    server = servers.register("local", engine.url)
    database = connections["default"].settings_dict["NAME"]
    env = {
        **os.environ,
        "REDIS_URL": valkey.url,
        "DATABASE_URL": f"sqlite:///{database}",
        "SLOTBOARD_VAR_DIR": str(Path(database).parent),
    }
    process = subprocess.Popen([sys.executable, "manage.py", "observe"], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 20
        while (state := selectors.live_state(server.pk)) is None or state["health"]["state"] != "up":
            assert time.monotonic() < deadline, process.communicate()[1] if process.poll() is not None else "no state came"
            time.sleep(0.05)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=10)
        assert time.monotonic() - begin < 2
        assert process.returncode == 0
        assert "Traceback" not in said
    finally:
        process.kill()
        process.communicate()
