"""Field cases against a real stock llama-server: what is switched off, keys, sleep, silence, cancelled clients, restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from asgiref.sync import sync_to_async

from scheduler_api import kinds, servers
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.kinds.llama_server import LlamaServerKind
from scheduler_api.kinds.llama_state import ASLEEP, METRICS_OFF, SLOTS_OFF
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import observing
from tests.integration.scheduler_api.test_observe_real import complete
from tests.support.stock import running_stock

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey"), pytest.mark.model]


async def add(url: str, **more: Any) -> Server:
    return await sync_to_async(servers.register)("stock", url, **more)


def idle(state: dict[str, Any]) -> bool:
    return bool(state["health"]["text"] == "Idle")


async def test_cases_1_and_2_what_a_stock_server_has_off_is_named_with_its_flag() -> None:
    with running_stock(slots=False) as url:
        found = await sync_to_async(servers.probe)(url)
        assert found.missing == (SLOTS_OFF, METRICS_OFF)
        server = await add(url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["text"] == "Up")
    assert (state["missing"]["slots"], state["missing"]["queue"]) == (SLOTS_OFF, METRICS_OFF)
    assert (state["slots"], state["queue"], state["figures"]["gen_tps"]) == ([], None, None)


async def test_case_3_a_stock_server_with_a_key_is_unauthorised_without_it() -> None:
    with running_stock(api_key="right") as url:
        with pytest.raises(RegistrationRefused, match="asks for a key"):
            await add(url)
        server = await add(url, kind="llama_server")
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "unauthorised")
            assert (state["health"]["text"], state["health"]["detail"]) == ("Key needed", "Invalid API Key")
            assert state["figures"]["gen_tps"] is None


async def test_case_5_a_stock_server_goes_to_sleep_and_stays_asleep_while_it_is_watched() -> None:
    with running_stock(sleep_s=3, metrics=True) as url:
        server = await add(url)
        async with observing() as watching:
            await watching.until(server, idle)
            await complete(url, 0, 100, 30)
            state = await watching.until(server, lambda state: state["health"]["state"] == "sleeping", 20)
            assert state["missing"]["slots"] == ASLEEP
            await asyncio.sleep(5)
            async with httpx2.AsyncClient() as client:
                assert (await client.get(url + "/props")).json()["is_sleeping"] is True
            await complete(url, 0, 100, 30)
            await watching.until(server, lambda state: state["health"]["state"] == "up" and bool(state["slots"]))
            await watching.until(server, lambda state: state["health"]["state"] == "sleeping", 20)


async def test_case_6_a_stock_server_in_long_batches_is_never_called_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Present builds answer /slots during a batch, earlier ones when it is done; either way it is up, or busy and silent."""
    monkeypatch.setattr(kinds, "observed", lambda kind, model="": LlamaServerKind(silent_after_s=0.2))
    seen = set()
    with running_stock(ctx_size=65536, batch=16384) as url:
        server = await add(url)
        async with observing() as watching:
            await watching.until(server, idle)
            work = asyncio.create_task(complete(url, 0, 24000, 5))
            await watching.until(server, lambda state: any(slot["state"] != "idle" for slot in state["slots"]))
            while not work.done():
                state = await watching.state(server) or {}
                seen.add(state["health"]["state"])
                await asyncio.sleep(0.05)
            await watching.until(server, idle)
    assert seen <= {"up", "silent"}


async def test_case_11_clients_that_vanish_leave_no_slot_at_work() -> None:
    async def vanish(url: str, slot: int) -> None:
        body = {"prompt": [100 + slot] * 50, "id_slot": slot, "n_predict": 20000, "ignore_eos": True, "stream": True}
        async with httpx2.AsyncClient(timeout=60) as client, client.stream("POST", url + "/completion", json=body) as response:
            async for _ in response.aiter_bytes():
                await asyncio.sleep(3600)

    with running_stock(parallel=4, ctx_size=131072) as url:
        server = await add(url)
        async with observing() as watching:
            clients = [asyncio.create_task(vanish(url, slot)) for slot in range(4)]
            await watching.until(server, lambda state: [slot["state"] for slot in state["slots"]] == ["generating"] * 4, 20)
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            state = await watching.until(server, idle)
    assert all(slot["state"] == "idle" and slot["task"] is None and slot["rate"] is None for slot in state["slots"])


async def test_case_16_a_stock_server_that_restarts_is_marked_and_gives_no_negative_rate() -> None:
    with running_stock(metrics=True) as url:
        server = await add(url)
        async with observing() as watching:
            await watching.until(server, idle)
            await complete(url, 0, 300, 100)
            await watching.until(server, lambda state: any(value for _, value in state["figures"]["gen_series"]))
    port = int(url.rpartition(":")[2])
    async with observing() as watching:
        await watching.until(server, lambda state: state["health"]["state"] == "down")
        with running_stock(metrics=True, port=port):
            await watching.until(server, idle, 20)
            await complete(url, 0, 50, 10)
            state = await watching.until(server, lambda state: any(value for _, value in state["figures"]["gen_series"]))
    assert all(value is None or value >= 0 for _, value in state["figures"]["gen_series"] + state["figures"]["prompt_series"])
