"""The observer against a stock llama-server that answers what it is told, with the payloads that versions of it send."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from scheduler_api import health, kinds
from scheduler_api.kinds.llama_server import LlamaServerKind
from scheduler_api.kinds.llama_state import ASLEEP, KEPT_AWAKE, METRICS_OFF, SLOTS_OFF, WHY_NOT
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import frames_of, observing, register
from tests.support.stub_servers import IDLE_SLOT, FakeLlamaServer, FakeRedirect, busy_slot, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

METRICS = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
llamacpp:prompt_tokens_total {prompt}
llamacpp:tokens_predicted_total {generated}
llamacpp:requests_processing {processing}
llamacpp:requests_deferred {deferred}
llamacpp:n_busy_slots_per_decode -nan
"""


def metrics(prompt: int = 0, generated: int = 0, processing: int = 0, deferred: int | str = 0) -> str:
    return METRICS.format(prompt=prompt, generated=generated, processing=processing, deferred=deferred)


async def add(url: str, **more: Any) -> Server:
    return await sync_to_async(register)("stock", "llama_server", url, **more)


def is_up(state: dict[str, Any]) -> bool:
    return bool(state["health"]["state"] == "up")


async def test_case_2_without_metrics_the_flag_is_named_and_slots_give_the_rates() -> None:
    with running(FakeLlamaServer(slots=[busy_slot(0), {**IDLE_SLOT, "id": 1}])) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: len(state["slots"]) == 2)
            assert (state["health"]["text"], state["info"]["model"], state["info"]["build"]) == (
                "Serving",
                "tiny.gguf",
                "b11549-abc",
            )
            assert [slot["state"] for slot in state["slots"]] == ["generating", "idle"]
            assert state["slots"][0]["n_cached"] == 200
            assert state["switching"] == {"can": False, "why_not": WHY_NOT, "fields": {}}
            assert (state["policy"], state["phase"], state["queue"]) == (None, None, None)
            assert state["missing"]["queue"] == METRICS_OFF
            assert "iterations" in state["missing"]
            stock.slots[0] = busy_slot(0, n_decoded=41)
            state = await watching.until(server, lambda state: state["figures"]["gen_tps"] > 0)
            assert state["slots"][0]["rate"] > 0
            stock.slots[0] = {**busy_slot(0, n_decoded=41), "is_processing": False}
            state = await watching.until(server, lambda state: state["health"]["text"] == "Idle")
            assert (state["slots"][0]["task"], state["slots"][0]["rate"]) == (None, None)


async def test_polling_keeps_to_one_request_at_a_time_and_four_a_second() -> None:
    with running(FakeLlamaServer(slots=[busy_slot(0)], metrics=metrics(processing=1))) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            await watching.until(server, is_up)
            await asyncio.sleep(3)
    assert stock.most_pending == 1
    # One that comes late on a busy machine has the next one close behind it, so five gaps are looked at together.
    assert all(later - earlier >= 5 * 0.2 for earlier, later in zip(stock.times, stock.times[5:], strict=False))
    assert stock.seen["/slots"] >= 5


async def test_case_6_a_server_that_does_not_answer_is_busy_and_nothing_piles_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "observed", lambda kind, model="": LlamaServerKind(silent_after_s=0.5))
    with running(FakeLlamaServer(slots=[busy_slot(0)])) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            await watching.until(server, lambda state: bool(state["slots"]))
            stock.held.add("/slots")
            state = await watching.until(server, lambda state: state["health"]["text"] == "Busy, no answer for 2 s")
            assert (state["health"]["state"], state["health"]["detail"]) == ("silent", "/slots is not answered yet")
            assert state["slots"][0]["state"] == "generating"
            await asyncio.sleep(1)
            assert stock.pending == 1
            stock.held.clear()
            await watching.until(server, is_up)
    assert stock.most_pending == 1


async def test_case_1_slots_off_is_not_down() -> None:
    with running(FakeLlamaServer(slots_off=True, metrics=metrics(prompt=9000, processing=1, deferred=3))) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["queue"] is not None)
            assert (state["health"]["text"], state["queue"]["depth"]) == ("Serving", 3)
            assert (state["slots"], state["missing"]["slots"]) == ([], SLOTS_OFF)
            stock.metrics = metrics(prompt=9500, generated=10, processing=1, deferred="-nan")
            state = await watching.until(server, lambda state: state["figures"]["prompt_tps"] > 0)
            assert (state["figures"]["worst_stall_s"], state["missing"]["worst_stall_s"]) == (None, SLOTS_OFF)
            await watching.until(server, lambda state: state["queue"] is None)


@pytest.mark.parametrize(("key", "text"), [("", "Key needed"), ("wrong", "Key not accepted")])
async def test_case_3_a_key_that_is_missing_shows_no_zeros(key: str, text: str) -> None:
    with running(FakeLlamaServer(api_key="right", slots=[busy_slot(0)])) as stock:
        server = await add(stock.url, api_key=key)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "unauthorised")
            assert state["health"]["text"] == text
            assert state["health"]["seen_at"] is not None
            assert (state["figures"]["prompt_tps"], state["figures"]["gen_tps"], state["queue"]) == (None, None, None)
            assert stock.keys[-1] == (f"Bearer {key}" if key else None)
            assert stock.seen["/health"] >= 1


async def test_case_16_a_restart_with_lower_counters_is_marked_and_gives_no_negative_rate() -> None:
    stock = FakeLlamaServer(slots_off=True, metrics=metrics(prompt=9000, generated=800), process_start="1000")
    with running(stock):
        server = await add(stock.url)
        async with observing() as watching:
            await watching.until(server, lambda state: state["queue"] is not None)
            stock.loading = True
            state = await watching.until(server, lambda state: state["health"]["state"] == "loading")
            assert state["health"]["text"] == "Loading the model"
            stock.loading, stock.metrics, stock.process_start = False, metrics(prompt=12, generated=1), "2000"
            state = await watching.until(server, lambda state: bool(state["marks"]))
            await asyncio.sleep(1.5)
            state = await watching.state(server) or {}
    assert [mark["text"] for mark in state["marks"]] == ["restarted"]
    series = state["figures"]["prompt_series"] + state["figures"]["gen_series"]
    assert all(value is None or value >= 0 for _, value in series)


async def test_case_5_watching_does_not_keep_a_server_from_sleeping() -> None:
    with running(FakeLlamaServer(metrics=metrics(), sleep_after_s=2.0)) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            await watching.until(server, is_up)
            state = await watching.until(server, lambda state: state["health"]["state"] == "sleeping")
            assert (state["health"]["text"], state["missing"]["slots"]) == ("Asleep", ASLEEP)
            await asyncio.sleep(2)
            assert stock.woken == 0
            assert (await watching.state(server) or {})["health"]["state"] == "sleeping"


@pytest.mark.parametrize("build", ["b11549-abc", "b9760-6ee0f65"])
async def test_case_5_a_quiet_server_without_metrics_falls_asleep_while_it_is_watched(build: str) -> None:
    """Questions for slots count as use, so an idle server is asked ever more seldom."""
    stock = FakeLlamaServer(sleep_after_s=3.0)
    stock.props["build_info"] = build
    with running(stock):
        server = await add(stock.url, quiet=True)
        async with observing() as watching:
            await watching.until(server, lambda state: state["health"]["state"] == "sleeping", 15)
            asked = stock.seen["/slots"]
            await asyncio.sleep(2)
    assert (stock.woken, stock.seen["/slots"]) == (0, asked)


async def test_case_5_metrics_that_count_as_use_are_left_alone_too() -> None:
    """Builds before the autumn of 2026 wake a sleeping model for /metrics and take it as use."""
    stock = FakeLlamaServer(metrics=metrics(), metrics_are_use=True, sleep_after_s=3.0)
    stock.props["build_info"] = "b9760-6ee0f65"
    with running(stock):
        server = await add(stock.url, quiet=True)
        async with observing() as watching:
            await watching.until(server, lambda state: state["health"]["state"] == "sleeping", 20)
            await asyncio.sleep(2)
    assert stock.woken == 0


async def test_case_5_a_server_that_watching_keeps_awake_says_so() -> None:
    with running(FakeLlamaServer()) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: "sleep" in state["missing"])
    assert state["missing"]["sleep"] == KEPT_AWAKE


async def test_case_14_what_is_no_number_reaches_no_frame() -> None:
    slot = busy_slot(0) | {"n_prompt_tokens": float("nan"), "n_ctx": float("inf")}
    stock = FakeLlamaServer(slots_answer=(200, [slot]), metrics=metrics(prompt=5, deferred="-nan", processing=1))
    with running(stock):
        server = await add(stock.url)
        async with observing() as watching, frames_of(server) as frames:
            state = await watching.until(server, lambda state: bool(state["slots"]))
            stock.slots_answer = (200, [slot | {"id_task": 136}])
            state = await watching.until(server, lambda state: state["slots"][0]["task"] == 136)
            await asyncio.sleep(0.5)
    assert (state["slots"][0]["n_tokens"], state["slots"][0]["n_ctx"], state["queue"]) == (None, None, None)
    assert frames
    json.dumps(frames, allow_nan=False)


async def test_case_18_slots_that_work_without_a_token_are_not_called_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "NOT_SERVING_AFTER_S", 1.5)
    with running(
        FakeLlamaServer(slots=[busy_slot(0), {**IDLE_SLOT, "id": 1}], metrics=metrics(processing=1, deferred=5))
    ) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "not_serving")
            assert state["health"]["detail"] == "1 of its slots has work, 5 wait"
            assert state["slots"][0]["state"] == "generating"
            stock.slots[0] = busy_slot(0, n_decoded=2)
            await watching.until(server, is_up)


async def test_case_18_batches_without_a_finished_request_are_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slots off, a llama-server counts tokens only when a request ends, but it counts its batches."""
    monkeypatch.setattr(health, "NOT_SERVING_AFTER_S", 2.0)
    with running(FakeLlamaServer(slots_off=True)) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            for decodes in range(16):
                stock.metrics = metrics(prompt=9, processing=1) + f"llamacpp:n_decode_total {decodes}\n"
                await asyncio.sleep(0.25)
                state = await watching.state(server) or {"health": {"state": "unknown"}}
                assert state["health"]["state"] in ("unknown", "up")
            await watching.until(server, lambda state: state["health"]["state"] == "not_serving")


async def test_case_11_after_clients_went_away_no_slot_stays_busy() -> None:
    slots = [busy_slot(number, task=number) for number in range(8)]
    with running(FakeLlamaServer(slots=slots)) as stock:
        server = await add(stock.url)
        async with observing() as watching:
            await watching.until(
                server, lambda state: all(slot["state"] != "idle" for slot in state["slots"]) and bool(state["slots"])
            )
            stock.slots = [{**slot, "is_processing": False} for slot in slots]
            gone = time.time()
            state = await watching.until(server, lambda state: all(slot["state"] == "idle" for slot in state["slots"]))
    assert all(slot["since"] >= gone - 0.1 for slot in state["slots"])
    assert state["health"]["text"] == "Idle"


@pytest.mark.parametrize("kind", ["llama_server", "vllm", "engine"])
async def test_case_35_the_observer_follows_no_redirect_with_the_key(kind: str) -> None:
    with running(FakeLlamaServer(api_key="secret")) as goal, running(FakeRedirect()) as moved:
        moved.elsewhere = goal.url
        server = await sync_to_async(register)("moved", kind, moved.url, api_key="secret")
        async with observing() as watching:
            state = await watching.until(server, lambda state: state["health"]["state"] == "down")
    assert goal.keys == []
    assert "secret" not in json.dumps(state)
