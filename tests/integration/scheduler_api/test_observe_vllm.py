"""The observer against a vLLM that answers what it is told, with two engines behind one address."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from scheduler_api import health
from scheduler_api.kinds.vllm_state import MODELS_NEED_KEY, NO_SLOTS, WHY_NOT
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.stub_servers import VLLM_METRICS, FakeVllm, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


async def add(url: str, **more: Any) -> Server:
    return await sync_to_async(register)("vllm", "vllm", url, **more)


def told(**changes: float) -> str:
    """The metrics with other values of engine 0, by the part of their name after `vllm:`."""
    text = VLLM_METRICS
    for name, value in changes.items():
        text, found = re.subn(rf'(vllm:{name}{{engine="0",model_name="qwen"}}) \S+', rf"\1 {value}", text)
        assert found == 1, name
    return text


async def test_two_engines_are_watched_and_what_is_not_told_says_why() -> None:
    with running(FakeVllm()) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: bool(state["units"]) and bool(state["info"]["build"]))
            assert (state["health"]["text"], state["queue"]["depth"], state["info"]["model"]) == ("Serving", 2, "qwen")
            assert (state["info"]["build"], state["info"]["n_ctx_slot"]) == ("vLLM 0.32.0", 32768)
            assert [(unit["id"], unit["text"], unit["running"], unit["kv_use"]) for unit in state["units"]] == [
                ("0", "Serving", 3, 0.42),
                ("1", "Idle", 0, 0.0),
            ]
            assert (state["slots"], state["missing"]["slots"], state["switching"]["why_not"]) == ([], NO_SLOTS, WHY_NOT)
            assert state["figures"]["worst_stall_s"] is None
            assert "not export" in state["units"][1]["missing"]["prefix_hits"]
            later = told(generation_tokens_total=1100.0, prefix_cache_queries_total=1100.0, prefix_cache_hits_total=680.0)
            vllm.metrics = (
                later.replace('le="0.5",model_name="qwen"} 8.0', 'le="0.5",model_name="qwen"} 9.0')
                .replace('le="+Inf",model_name="qwen"} 10.0', 'le="+Inf",model_name="qwen"} 11.0')
                .replace('le="1.0",model_name="qwen"} 9.0', 'le="1.0",model_name="qwen"} 10.0')
            )
            state = await watching.until(server, lambda state: (state["units"][0]["gen_tps"] or 0) > 0)
            assert (state["units"][0]["prefix_hits"], state["units"][0]["ttft"]["n"]) == (0.8, 1)
            assert 0.1 <= state["units"][0]["ttft"]["p50"] <= 0.5
            assert state["figures"]["gen_tps"] > 0
            assert state["units"][0]["prompt_tps"] == 0.0


async def test_case_3_vllms_key_guards_the_models_name_alone() -> None:
    """Its metrics and health answer without one, so the server is not unauthorised: what is missing says so."""
    with running(FakeVllm(api_key="right")) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: "model" in state["missing"])
    assert (state["health"]["state"], state["missing"]["model"], state["info"]["model"]) == ("up", MODELS_NEED_KEY, "qwen")


async def test_case_2_without_metrics_the_server_is_up_and_says_what_is_not_known() -> None:
    with running(FakeVllm(metrics=None)) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: "queue" in state["missing"] and state["info"]["model"] == "qwen")
    assert (state["health"]["text"], state["queue"], state["figures"]["gen_tps"]) == ("Up", None, None)
    assert "no /metrics" in state["missing"]["queue"]


async def test_case_16_a_restart_is_a_gap_with_a_mark() -> None:
    with running(FakeVllm(metrics=told(generation_tokens_total=9000.0))) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            await watching.until(server, lambda state: bool(state["units"]))
            vllm.metrics = told(generation_tokens_total=12.0).replace("1000.5", "3000.5")
            state = await watching.until(server, lambda state: bool(state["marks"]))
            await asyncio.sleep(1.2)
            state = await watching.state(server) or {}
    assert [mark["text"] for mark in state["marks"]] == ["restarted"]
    assert all(value is None or value >= 0 for _, value in state["figures"]["gen_series"] + state["figures"]["prompt_series"])


async def test_case_18_healthy_but_not_serving_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs, five wait, /health answers 200, and no token comes: that is neither up nor down."""
    monkeypatch.setattr(health, "NOT_SERVING_AFTER_S", 2.0)
    stuck = told(num_requests_running=1.0, num_requests_waiting=5.0)
    with running(FakeVllm(metrics=stuck)) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            state = await watching.until(
                server, lambda state: state["health"]["text"].startswith("Up but not serving, no token for ")
            )
            assert state["health"]["state"] == state["units"][0]["state"] == "not_serving"
            assert state["health"]["detail"] == "1 request runs, 5 wait"
            assert (state["queue"]["depth"], state["figures"]["gen_tps"]) == (5, 0.0)
            since = state["health"]["since"]
            await asyncio.sleep(1.2)
            assert ((await watching.state(server)) or {})["health"]["since"] == since
            vllm.metrics = stuck.replace("900.0", "905.0")
            await watching.until(server, lambda state: state["health"]["state"] == "up")


async def test_case_18_one_engine_that_stands_still_is_named_while_the_other_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "NOT_SERVING_AFTER_S", 2.0)
    with running(FakeVllm()) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            for step in range(1, 14):
                # Engine 1 goes on, engine 0 has its three requests and gives no token.
                vllm.metrics = VLLM_METRICS.replace("40.0", f"{40 + step}.0").replace(
                    'running{engine="1",model_name="qwen"} 0.0', 'running{engine="1",model_name="qwen"} 1.0'
                )
                await asyncio.sleep(0.3)
            state = await watching.until(server, lambda state: state["health"]["state"] == "not_serving")
    assert (state["health"]["text"], state["health"]["detail"]) == ("Engine 0 is up but not serving", "3 run, 2 wait")
    assert [unit["state"] for unit in state["units"]] == ["not_serving", "up"]


async def test_a_sleeping_engine_is_asleep_and_a_dead_one_is_down() -> None:
    asleep = VLLM_METRICS.replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')
    idle = asleep.replace('running{engine="0",model_name="qwen"} 3.0', 'running{engine="0",model_name="qwen"} 0.0').replace(
        'waiting{engine="0",model_name="qwen"} 2.0', 'waiting{engine="0",model_name="qwen"} 0.0'
    )
    with running(FakeVllm(metrics=idle)) as vllm:
        server = await add(vllm.url)
        async with observing() as watching:
            await watching.until(server, lambda state: state["health"]["state"] == "sleeping")
    with running(FakeVllm(health_status=503)) as dead:
        server = await sync_to_async(register)("dead", "vllm", dead.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "down")
    assert (state["health"]["text"], state["health"]["detail"]) == ("Down: answers 503", "its engine died")
