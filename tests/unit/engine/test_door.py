"""How many may wait, for how long, and what those are told who may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, FakeBackend, Served, served

ENDLESS = {"prompt": "a", "n_predict": -1, "ignore_eos": True}
SHORT = {"prompt": "b", "n_predict": 1}


@asynccontextmanager
async def crowded(
    *flags: str, n_running: int = 2
) -> AsyncIterator[tuple[Served, FakeBackend, list[asyncio.Task[httpx2.Response]]]]:
    """A server of two slots whose batches stand still, with `n_running` endless tasks in them."""
    backend = FakeBackend(parse_options(FLAGS, {}).backend_options)
    async with served(*flags, backend=backend) as engine:
        backend.open.clear()
        running = []
        for _ in range(n_running):
            running.append(await waiting(engine, ENDLESS))
            assert await asyncio.to_thread(backend.running.wait, 5)
        try:
            yield engine, backend, running
        finally:
            for request in running:
                request.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            backend.open.set()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


async def waiting(engine: Served, body: dict[str, Any]) -> asyncio.Task[httpx2.Response]:
    before = engine.runner.n_tasks
    request = asyncio.create_task(engine.post("/completion", body))
    await until(lambda: engine.runner.n_tasks > before)
    return request


def error(answer: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_a_503_that_says_when_to_come_back(stream: bool) -> None:
    async with crowded("--queue-limit", "1") as (engine, backend, _):
        fits = await waiting(engine, SHORT)
        refused = await engine.post("/completion", {**SHORT, "stream": stream})
        assert refused.status_code == 503  # in a stream too: no byte of an answer is out
        assert error(refused) == {
            "code": 503,
            "message": "The queue is full: 1 tasks wait for a slot.",
            "type": "unavailable_error",
        }
        assert int(refused.headers["retry-after"]) >= 1
        assert "slotboard_requests_refused_total 1\n" in (await engine.client.get("/metrics")).text
        fits.cancel()
        await until(lambda: engine.runner.n_tasks == 2)
        backend.open.set()
        assert (await engine.post("/completion", {**SHORT, "stream": stream})).status_code == 200


async def test_without_a_limit_everybody_waits() -> None:
    async with crowded() as (engine, backend, running):
        many = [await waiting(engine, SHORT) for _ in range(30)]
        for request in running:
            request.cancel()
        backend.open.set()
        assert {answer.status_code for answer in await asyncio.gather(*many)} == {200}


async def test_a_limit_of_0_still_lets_idle_slots_be_taken() -> None:
    async with crowded("--queue-limit", "0", n_running=1) as (engine, backend, _):
        fits = await waiting(engine, SHORT)
        assert (await engine.post("/completion", SHORT)).status_code == 503
        backend.open.set()
        assert (await fits).status_code == 200


async def test_a_pinned_task_waits_though_another_slot_is_idle() -> None:
    async with crowded("--queue-limit", "0", n_running=0) as (engine, backend, running):
        running.append(await waiting(engine, {**ENDLESS, "id_slot": 1}))
        assert (await engine.post("/completion", {**SHORT, "id_slot": 3})).status_code == 503  # 3 modulo 2 slots
        backend.open.set()
        assert (await engine.post("/completion", {**SHORT, "id_slot": 0})).status_code == 200


@pytest.mark.parametrize("body", [{"prompt": ["b", "c"]}, {"prompt": ["b", "c"], "stream": True}])
async def test_all_prompts_of_a_request_come_in_or_none(body: dict[str, Any]) -> None:
    async with crowded("--queue-limit", "1") as (engine, _, _):
        assert (await engine.post("/completion", {**body, "n_predict": 1})).status_code == 503
        assert engine.runner.n_tasks == 2
        await waiting(engine, SHORT)  # there is still room for one


async def test_answers_of_one_prompt_need_slots_of_their_own() -> None:
    async with crowded("--queue-limit", "0", n_running=1) as (engine, _, _):
        assert (await engine.post("/completion", {**SHORT, "n_cmpl": 2})).status_code == 503
        assert engine.runner.n_tasks == 1


async def test_what_an_idle_server_would_not_take_is_a_400() -> None:
    async with served("--queue-limit", "1") as engine:
        answer = await engine.post("/completion", {"prompt": ["a", "b", "c", "d"], "n_predict": 1})
        assert answer.status_code == 400
        assert error(answer)["message"] == "The request has 4 prompts for 2 slots and a queue of 1."
        assert "retry-after" not in answer.headers
        assert (await engine.post("/completion", {"prompt": ["a", "b", "c"], "n_predict": 1})).status_code == 200


async def test_the_estimate_follows_the_last_tasks() -> None:
    async with crowded("--queue-limit", "0") as (engine, _, _):
        engine.runner.meters.service.extend([30.0, 50.0])
        assert (await engine.post("/completion", SHORT)).headers["retry-after"] == "20"  # 2 slots, 40 s each
        engine.runner.meters.service.clear()
        assert (await engine.post("/completion", SHORT)).headers["retry-after"] == "1"


@pytest.mark.parametrize("where", ["request", "server"])
async def test_a_task_that_nobody_begins_in_time_is_a_503(where: str) -> None:
    flags, wish = (("--queue-timeout-ms", "50"), {}) if where == "server" else ((), {"queue_timeout_ms": 50})
    async with crowded(*flags, n_running=0) as (engine, backend, running):
        running.append(await waiting(engine, {**ENDLESS, "queue_timeout_ms": 0}))
        running.append(await waiting(engine, {**ENDLESS, "queue_timeout_ms": -1}))
        late = await waiting(engine, {**SHORT, **wish})
        await asyncio.sleep(0.1)
        assert not late.done()  # a task leaves between two batches
        backend.open.set()
        answer = await late
        assert answer.status_code == 503
        assert error(answer) == {
            "code": 503,
            "message": "No work on the prompt began within 50 ms (queue_timeout_ms): the server is busy.",
            "type": "unavailable_error",
        }
        assert "slotboard_tasks_expired_total 1\n" in (await engine.client.get("/metrics")).text


async def test_a_stream_that_waits_for_too_long_ends_with_an_event() -> None:
    async with crowded() as (engine, backend, _):
        late = await waiting(engine, {**SHORT, "prompt": ["b", "c"], "stream": True, "queue_timeout_ms": 20})
        await asyncio.sleep(0.05)
        backend.open.set()
        answer = await late
        assert answer.status_code == 200
        assert answer.text.startswith('data: {"error":{"code":503,"message":"No work on the prompt began within 20 ms')
        assert answer.text.count("data: ") == 1
        assert engine.runner.meters.expired == 2
        assert engine.runner.view()["queue"]["depth"] == 0


async def test_a_begun_task_is_not_ended_by_the_time_limit() -> None:
    async with crowded(n_running=0) as (engine, backend, _):
        begun = await waiting(engine, {"prompt": "a", "n_predict": 20, "ignore_eos": True, "queue_timeout_ms": 20})
        assert await asyncio.to_thread(backend.running.wait, 5)
        await asyncio.sleep(0.05)
        backend.open.set()
        assert (await begun).json()["tokens_predicted"] == 20
        assert engine.runner.meters.expired == 0


async def test_readers_that_leave_give_their_places_back() -> None:
    async with crowded("--queue-limit", "1") as (engine, backend, _):
        for _ in range(3):
            request = await waiting(engine, {**SHORT, "stream": True})
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            assert engine.runner.n_tasks == 2
        backend.open.set()


async def test_a_stop_begins_with_a_shut_door() -> None:
    async with served() as engine:
        engine.runner.door.closed = True
        for body in (SHORT, {**SHORT, "stream": True}):
            answer = await engine.post("/completion", body)
            assert answer.status_code == 503
            assert error(answer)["message"] == "The server is shutting down: it takes no new requests."
