"""The observer against a llama-server that routes to several models."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from scheduler_api import health, kinds
from scheduler_api.kinds.llama_router import NONE_LOADED
from scheduler_api.kinds.llama_server import LlamaServerKind
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import observing, register
from tests.integration.scheduler_api.test_observe_llama_server import metrics
from tests.support.stub_servers import IDLE_SLOT, FakeLlamaServer, FakeRouter, busy_slot, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

LOADED, UNLOADED, SLEEPING = {"value": "loaded"}, {"value": "unloaded"}, {"value": "sleeping"}


async def add(url: str, **more: Any) -> Server:
    return await sync_to_async(register)("router", "llama_server", url, **more)


def units(state: dict[str, Any]) -> dict[str, Any]:
    return {unit["id"]: unit for unit in state["units"]}


def three_models() -> FakeRouter:
    """One at work, one not loaded, one asleep."""
    qwen = FakeLlamaServer(slots=[{**IDLE_SLOT, "id": 0}, busy_slot(1)], metrics=metrics(processing=1, deferred=2))
    return FakeRouter(
        models={"qwen": qwen, "Qwen3VL-8B": FakeLlamaServer(), "gemma": FakeLlamaServer()},
        status={"qwen": LOADED, "Qwen3VL-8B": {**UNLOADED, "failed": True, "exit_code": 1}, "gemma": SLEEPING},
    )


async def test_case_4_a_router_shows_each_model_and_asks_only_those_that_are_loaded() -> None:
    with running(three_models()) as router:
        server = await add(router.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: len(state["slots"]) == 2 and state["queue"] is not None)
            await asyncio.sleep(2)
        shown = units(state)
    assert (shown["qwen"]["state"], shown["qwen"]["text"], shown["qwen"]["running"]) == ("up", "Serving", 1)
    assert (shown["Qwen3VL-8B"]["state"], shown["Qwen3VL-8B"]["text"]) == ("unloaded", "Not loaded")
    assert shown["Qwen3VL-8B"]["detail"] == "its last process ended with code 1"
    assert (shown["gemma"]["state"], shown["gemma"]["text"]) == ("sleeping", "Asleep")
    assert (state["health"]["state"], state["queue"]["depth"], state["info"]["model"]) == ("up", 2, "3 models, 1 loaded")
    assert [(slot["model"], slot["model_slot"], slot["state"]) for slot in state["slots"]] == [
        ("qwen", 0, "idle"),
        ("qwen", 1, "generating"),
    ]
    assert {name for name, _ in router.asked} == {"qwen"}
    assert router.woken == []
    assert min(later - earlier for earlier, later in pairwise(router.times)) >= 0.2


async def test_case_4_slots_of_several_models_have_numbers_of_their_own_and_keep_them() -> None:
    router = FakeRouter(
        models={name: FakeLlamaServer(slots=[{**IDLE_SLOT}]) for name in ("a", "b")}, status={"a": LOADED, "b": LOADED}
    )
    with running(router):
        server = await add(router.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: len(state["slots"]) == 2)
            numbers = {slot["model"]: slot["id"] for slot in state["slots"]}
            assert sorted(numbers.values()) == [0, 1]
            router.status["a"] = UNLOADED
            state = await watching.until(server, lambda state: len(state["slots"]) == 1)
            assert (units(state)["a"]["state"], state["slots"][0]["id"]) == ("unloaded", numbers["b"])
            router.status["a"] = LOADED
            state = await watching.until(server, lambda state: len(state["slots"]) == 2)
    assert {slot["model"]: slot["id"] for slot in state["slots"]} == numbers
    assert state["marks"] == []


async def test_case_4_no_model_loaded_is_idle_and_says_so() -> None:
    with running(FakeRouter(models={"a": FakeLlamaServer()}, status={"a": UNLOADED})) as router:
        server = await add(router.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: bool(state["units"]))
    assert (state["health"]["text"], state["slots"], state["queue"]) == ("Idle", [], None)
    assert (state["missing"]["slots"], state["missing"]["queue"]) == (NONE_LOADED, NONE_LOADED)


async def test_case_5_and_6_a_model_that_is_silent_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loaded model is a process of its own: one that computes a long batch has one request pending, the other goes on."""
    monkeypatch.setattr(kinds, "observed", lambda kind, model="": LlamaServerKind(silent_after_s=0.5))
    busy, other = FakeLlamaServer(slots=[busy_slot(0)]), FakeLlamaServer(slots=[busy_slot(0, task=7)])
    busy.held.add("/slots")
    with running(FakeRouter(models={"busy": busy, "other": other}, status={"busy": LOADED, "other": LOADED})) as router:
        server = await add(router.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: (units(state).get("busy") or {}).get("state") == "silent")
            assert state["health"]["state"] == "up"
            seen = router.asked["other", "/slots"]
            await asyncio.sleep(1.5)
            assert router.asked["busy", "/slots"] == 1
            assert router.asked["other", "/slots"] > seen
            other.slots = [busy_slot(0, task=7, n_decoded=60)]
            await watching.until(server, lambda state: (units(state)["other"]["gen_tps"] or 0) > 0)
            busy.held.clear()
            await watching.until(server, lambda state: units(state)["busy"]["state"] == "up")


async def test_case_18_a_model_that_stands_still_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "NOT_SERVING_AFTER_S", 1.5)
    stuck, other = FakeLlamaServer(slots=[busy_slot(0)]), FakeLlamaServer(slots=[busy_slot(0, task=7)])
    with running(FakeRouter(models={"stuck": stuck, "other": other}, status={"stuck": LOADED, "other": LOADED})) as router:
        server = await add(router.url)
        async with observing() as watching:
            for step in range(12):
                other.slots = [busy_slot(0, task=7, n_decoded=5 + step)]
                await asyncio.sleep(0.25)
            state = await watching.until(server, lambda state: state["health"]["state"] == "not_serving")
    assert state["health"]["text"] == "Model stuck is up but not serving"
    assert units(state)["stuck"]["text"].startswith("Up but not serving, no token for ")
    assert units(state)["other"]["state"] == "up"
