"""A batch that fails: who was in it ends, who was not goes on; in both KV modes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from engine.backends.base import BackendError
from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, FakeBackend, Served, served

KV_MODES = pytest.mark.parametrize("kv", ["--no-kv-unified", "--kv-unified"])
FAULTS = pytest.mark.parametrize(
    ("fault", "message"),
    [
        (BackendError("Compute error."), "Compute error."),
        (RuntimeError("secret"), "Internal error of the backend: RuntimeError."),
        (MemoryError(), "Internal error of the backend: MemoryError."),
    ],
)


@asynccontextmanager
async def standing(*flags: str) -> AsyncIterator[tuple[Served, FakeBackend]]:
    """A server of two slots whose batches stand still until `open` is set."""
    backend = FakeBackend(parse_options([*FLAGS, *flags], {}).backend_options)
    async with served(*flags, backend=backend) as engine:
        backend.open.clear()
        yield engine, backend
        backend.open.set()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


async def sent(engine: Served, **body: Any) -> asyncio.Task[httpx2.Response]:
    before = engine.runner.n_tasks
    request = asyncio.create_task(engine.post("/completion", {"prompt": "a", "n_predict": 3, "ignore_eos": True, **body}))
    await until(lambda: engine.runner.n_tasks > before)
    return request


@KV_MODES
@FAULTS
async def test_who_waits_is_served_after_it(kv: str, fault: Exception, message: str) -> None:
    async with standing(kv) as (engine, backend):
        hit = await sent(engine)
        assert await asyncio.to_thread(backend.running.wait, 5)
        waiting = [await sent(engine, prompt="b"), await sent(engine, prompt="c"), await sent(engine, prompt="d", stream=True)]
        backend.fault = fault
        backend.open.set()
        assert (await hit).json()["error"]["message"] == message
        answers = await asyncio.gather(*waiting)
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert '"error"' not in answers[2].text
        assert [answer.json()["tokens_predicted"] for answer in answers[:2]] == [3, 3]
        await engine.idle()
        assert engine.runner.n_tasks == 0


@KV_MODES
@FAULTS
async def test_a_held_token_outlives_a_failed_batch(kv: str, fault: Exception, message: str) -> None:
    """Under a barrier the short prompt is done and held while the long one's second batch fails."""
    async with standing(kv, "-b", "16", "--phase", "barrier") as (engine, backend):
        short = await sent(engine, prompt=[300] * 4, id_slot=0)
        assert await asyncio.to_thread(backend.running.wait, 5)
        long = await sent(engine, prompt=[301] * 40, id_slot=1)
        backend.open.set()
        await until(lambda: engine.runner.n_tasks == 0)
        assert [answer.status_code for answer in await asyncio.gather(short, long)] == [200, 200]

        engine.runner.set_policy({"barrier_join": "window"}, expected_version=1, ttl_s=None, reason="", dry_run=False)
        backend.open.clear()
        backend.running.clear()
        both = [
            await sent(engine, prompt=[302] * 60, id_slot=1, cache_prompt=False),
            await sent(engine, prompt=[303] * 4, id_slot=0, cache_prompt=False),
        ]
        backend.faults_when = lambda plan: bool(plan.held)
        backend.fault = fault
        backend.open.set()
        failed, held = await asyncio.gather(*both)
        assert failed.json()["error"]["message"] == message
        assert held.json()["tokens_predicted"] == 3


@KV_MODES
async def test_the_next_prompt_in_the_slot_relies_on_no_cell_of_a_failed_batch(kv: str) -> None:
    async with standing(kv) as (engine, backend):
        backend.open.set()
        plain = (await engine.post("/completion", {"prompt": "one two three", "n_predict": 8, "id_slot": 0})).json()["content"]
        backend.fault = BackendError("Compute error.")
        body = {"prompt": "one two three four", "n_predict": 8, "id_slot": 0}
        assert (await engine.post("/completion", body)).status_code == 500
        again = (await engine.post("/completion", {"prompt": "one two three", "n_predict": 8, "id_slot": 0})).json()
        assert again["content"] == plain
