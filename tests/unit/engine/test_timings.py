"""What an answer's timings say: each stage under its own name, and all of them together the whole time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.backends.simulated import CostModel, SimulatedBackend
from engine.clock import RealClock
from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, Served, served

PROMPT_MS, DECODE_MS = 0.5, 4.0  # for each token
STAGES = ("queue_ms", "wait_ms", "prompt_ms", "hold_ms", "predicted_ms")
BATCH = ("-b", "32", "-ub", "32")


@pytest.fixture
async def engine() -> AsyncIterator[Served]:
    options = parse_options([*FLAGS, *BATCH], {})
    cost = CostModel(alpha=PROMPT_MS / 1e3, beta=0.0, batch=0.0, decode=DECODE_MS / 1e3)
    async with served(*BATCH, backend=SimulatedBackend(options.backend_options, cost, RealClock())) as running:
        yield running


def switch(engine: Served, **changes: object) -> None:
    version = engine.runner.view()["policy"]["version"]
    engine.runner.set_policy(changes, expected_version=version, ttl_s=None, reason="", dry_run=False)


def body(n_prompt: int, n_predict: int, slot: int = -1) -> dict[str, Any]:
    return {"prompt": [300] * n_prompt, "n_predict": n_predict, "id_slot": slot, "ignore_eos": True, "cache_prompt": False}


async def ask(engine: Served, n_prompt: int, n_predict: int, slot: int = -1, *, stream: bool = False) -> dict[str, float]:
    """The timings of one request, whose stages must add up to the whole and to what a clock at the client saw."""
    began = time.perf_counter()
    response = await engine.post("/completion", {**body(n_prompt, n_predict, slot), "stream": stream})
    wall_ms = (time.perf_counter() - began) * 1e3
    text = response.text.strip().splitlines()[-1].removeprefix("data: ") if stream else response.text
    timings: dict[str, float] = json.loads(text)["timings"]
    assert sum(timings[name] for name in STAGES) == pytest.approx(timings["total_ms"], abs=0.02)
    assert timings["total_ms"] <= wall_ms + 0.01
    assert all(timings[name] >= 0 for name in (*STAGES, "skipped_ms", "paused_ms"))
    assert timings["skipped_ms"] <= timings["prompt_ms"]
    assert timings["paused_ms"] <= timings["predicted_ms"]
    return timings


@pytest.mark.parametrize("stream", [False, True])
async def test_alone_there_is_prompt_and_generation_only(engine: Served, stream: bool) -> None:
    timings = await ask(engine, 100, 5, stream=stream)
    assert timings["prompt_ms"] >= 100 * PROMPT_MS
    assert timings["predicted_ms"] >= 4 * DECODE_MS  # the first token comes from the prompt's last batch
    assert timings["hold_ms"] == timings["skipped_ms"] == timings["paused_ms"] == 0


async def test_a_queue_is_neither_wait_nor_prompt_time(engine: Served) -> None:
    first, second = await asyncio.gather(ask(engine, 20, 20, 0), ask(engine, 20, 2, 0))
    assert first["queue_ms"] < second["queue_ms"]
    assert second["queue_ms"] >= 19 * DECODE_MS
    assert second["hold_ms"] == second["skipped_ms"] == 0


async def test_starving_behind_a_long_prompt_is_wait(engine: Served) -> None:
    switch(engine, prefill_order="physical")
    long, short = await asyncio.gather(ask(engine, 200, 1, 0), ask(engine, 32, 1, 1))
    assert short["wait_ms"] >= 100 * PROMPT_MS
    assert long["wait_ms"] < short["wait_ms"]
    assert short["queue_ms"] < short["wait_ms"]


async def test_batches_without_a_token_of_the_prompt_are_skipped_time(engine: Served) -> None:
    """Rotating: each of two long prompts is left out of every other batch, once it was visited."""
    switch(engine, prefill_order="rotating", rotation_start="after_first")
    one, two = await asyncio.gather(ask(engine, 200, 1, 0), ask(engine, 200, 1, 1))
    for timings in (one, two):
        assert timings["skipped_ms"] >= 3 * 32 * PROMPT_MS
        assert timings["prompt_ms"] - timings["skipped_ms"] >= 0.9 * 200 * PROMPT_MS
        assert timings["hold_ms"] == 0


async def test_a_decode_share_is_skipped_time_of_the_prompt_and_no_pause_of_the_answer(engine: Served) -> None:
    switch(engine, decode_share=0.5)

    async def later() -> dict[str, float]:
        await asyncio.sleep(0.05)
        return await ask(engine, 200, 1, 1)

    answer, prompt = await asyncio.gather(ask(engine, 10, 120, 0), later())
    assert prompt["skipped_ms"] >= 0.3 * prompt["prompt_ms"]
    assert prompt["hold_ms"] == prompt["paused_ms"] == 0
    assert answer["paused_ms"] == answer["skipped_ms"] == 0


async def test_a_barrier_holds_and_a_limit_of_tokens_pauses(engine: Served) -> None:
    switch(engine, phase="barrier", prefill_order="physical", barrier_max_generation_tokens=4)

    async def later(seconds: float, *sizes: int) -> dict[str, float]:
        await asyncio.sleep(seconds)
        return await ask(engine, *sizes)

    # the long prompt comes first: it keeps the cohort open for the short one, however late that comes on a busy machine
    long, short, _ = await asyncio.gather(ask(engine, 200, 2, 1), later(0.01, 20, 40, 0), later(0.05, 100, 2))
    assert short["hold_ms"] >= 100 * PROMPT_MS
    assert short["paused_ms"] >= 0.5 * 100 * PROMPT_MS
    assert short["predicted_ms"] - short["paused_ms"] >= 39 * DECODE_MS
    assert long["hold_ms"] <= short["hold_ms"]
