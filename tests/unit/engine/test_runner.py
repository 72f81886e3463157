"""The loop thread: what it does between batches, and that it outlives every fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.backends.base import BackendError, KvFull
from engine.edits import SlotBusy
from engine.options import parse_options
from engine.scheduler.core import Scheduler
from tests.unit.engine.harness import FLAGS, FakeBackend, Served, served


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(parse_options(FLAGS, {}).backend_options)


@pytest.fixture
async def engine(backend: FakeBackend) -> AsyncIterator[Served]:
    async with served(backend=backend) as running:
        yield running
        backend.open.set()


async def until_running(backend: FakeBackend) -> None:
    assert await asyncio.to_thread(backend.running.wait, 5)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (KvFull("full"), "Context size has been exceeded."),
        (BackendError("Compute error."), "Compute error."),
        (ZeroDivisionError("secret"), "Internal error of the backend: ZeroDivisionError."),
    ],
)
async def test_a_failed_batch_ends_its_tasks_and_the_server_lives(
    engine: Served, backend: FakeBackend, fault: Exception, message: str
) -> None:
    backend.fault = fault
    answer = await engine.post("/completion", {"prompt": "a", "n_predict": 2})
    assert answer.status_code == 500
    assert answer.json()["error"] == {"code": 500, "message": message, "type": "server_error"}
    assert engine.runner.ring.after(0, 10)[0][0].error == message
    assert (await engine.post("/completion", {"prompt": "a", "n_predict": 2})).json()["tokens_predicted"] == 2


async def test_a_fault_within_a_stream_is_an_event(engine: Served, backend: FakeBackend) -> None:
    backend.open.clear()
    backend.running.clear()
    request = asyncio.create_task(engine.post("/completion", {"prompt": "a", "n_predict": 2, "stream": True}))
    await until_running(backend)
    backend.fault = BackendError("Compute error.")
    backend.open.set()
    answer = await request
    assert answer.status_code == 200
    assert answer.text == 'data: {"error":{"code":500,"message":"Compute error.","type":"server_error"}}\n\n'


async def test_a_fault_of_the_scheduler_ends_all_tasks_and_the_loop_lives(
    engine: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Scheduler, now: float) -> None:
        monkeypatch.undo()
        raise RuntimeError("a bug")

    monkeypatch.setattr(Scheduler, "plan", fail)
    answer = await engine.post("/completion", {"prompt": "a", "n_predict": 2})
    assert answer.status_code == 500
    assert (await engine.post("/completion", {"prompt": "a", "n_predict": 2})).status_code == 200


async def test_state_policy_and_queue_answer_during_a_batch(engine: Served, backend: FakeBackend) -> None:
    backend.open.clear()
    first = asyncio.create_task(engine.post("/completion", {"prompt": "a", "n_predict": 2}))
    await until_running(backend)
    second = asyncio.create_task(engine.post("/completion", {"prompt": "b", "n_predict": 2}))
    for _ in range(50):
        state = (await engine.client.get("/scheduler")).json()
        if state["queue"]["depth"]:
            break
        await asyncio.sleep(0.01)
    assert state["queue"]["depth"] == 1  # it waits in the inbox until the batch is over
    assert state["queue"]["oldest_s"] > 0
    body = {"expected_version": 1, "set": {"prefill_order": "rotating"}}
    changed = (await engine.client.patch("/scheduler/policy", json=body)).json()
    assert changed["version"] == 2
    assert changed["effective_from_iteration"] == 2
    backend.open.set()
    assert [answer.status_code for answer in await asyncio.gather(first, second)] == [200, 200]
    records, _ = engine.runner.ring.after(0, 100)
    assert [record.policy_version for record in records[:2]] == [1, 2]


async def test_a_cancellation_takes_effect_after_the_batch(engine: Served, backend: FakeBackend) -> None:
    backend.open.clear()
    request = asyncio.create_task(engine.post("/completion", {"prompt": "a", "n_predict": -1, "ignore_eos": True}))
    await until_running(backend)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert any(slot["task"] is not None for slot in engine.runner.view()["slots"])
    backend.open.set()
    await engine.idle()
    assert engine.runner.ring.last == 1


async def test_a_stop_string_ends_the_task_before_the_next_batch(engine: Served) -> None:
    whole = (await engine.post("/completion", {"prompt": "a", "n_predict": 10, "temperature": 0})).json()["content"]
    words = whole.split()
    before = engine.runner.ring.last
    stop = {"prompt": "a", "n_predict": 10, "temperature": 0, "stop": [f" {words[3]}"], "cache_prompt": False}
    answer = (await engine.post("/completion", stop)).json()
    assert answer["content"] == whole[: whole.index(f" {words[3]}")]
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", f" {words[3]}")
    assert answer["tokens_predicted"] == 4
    assert engine.runner.ring.last == before + 4


async def test_waiting_for_a_change(engine: Served) -> None:
    seen = engine.runner.changes
    waiting = asyncio.create_task(engine.runner.changed(seen))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await engine.post("/completion", {"prompt": "a", "n_predict": 1})
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(engine.runner.changed(seen), 1)  # what was missed is not waited for
    waiting = asyncio.create_task(engine.runner.changed(engine.runner.changes))
    await asyncio.sleep(0)
    body = {"expected_version": 1, "set": {"phase": "barrier"}}
    await engine.client.patch("/scheduler/policy", json=body)
    await asyncio.wait_for(waiting, 5)


async def test_stopping_tells_who_still_waits(backend: FakeBackend) -> None:
    async with served(backend=backend) as engine:
        backend.open.clear()
        body = {"prompt": "a", "n_predict": -1, "ignore_eos": True, "stream": True}
        request = asyncio.create_task(engine.post("/completion", body))
        await until_running(backend)
        stopping = asyncio.create_task(asyncio.to_thread(engine.runner.stop, 5))
        await asyncio.sleep(0.05)
        backend.open.set()
        assert await stopping
        assert '"message":"The server is shutting down."' in (await request).text


async def test_an_edit_waits_for_its_slot_and_gives_up_in_time(engine: Served, backend: FakeBackend) -> None:
    backend.open.clear()
    request = asyncio.create_task(engine.post("/completion", {"prompt": "a", "n_predict": -1, "id_slot": 0, "ignore_eos": True}))
    await until_running(backend)
    edit = engine.runner.edit_slot
    edits = [asyncio.create_task(edit(slot, len, patience)) for slot, patience in ((0, 0.0), (1, 5.0), (0, 20.0))]
    await asyncio.sleep(0)  # they are queued while the first batch runs
    backend.open.set()
    with pytest.raises(SlotBusy):
        await edits[0]
    assert await edits[1] == 0
    assert (await request).status_code == 200
    assert await edits[2] > 200


async def test_an_edit_that_fails_tells_its_caller(engine: Served) -> None:
    def half(cells: list[int]) -> None:
        cells.append(7)
        raise BackendError("the disk is full")

    with pytest.raises(BackendError, match="the disk is full"):
        await engine.runner.edit_slot(1, half, 5.0)
    assert await engine.runner.edit_slot(1, list, 5.0) == [7]


async def test_saved_slots_on_the_cost_model(tmp_path: Path) -> None:
    async with served("--slot-save-path", str(tmp_path)) as engine:
        first = (
            await engine.post("/completion", {"prompt": "one two", "id_slot": 0, "n_predict": 4, "return_tokens": True})
        ).json()
        assert (await engine.post("/slots/0?action=save", {"filename": "s"})).json()["n_saved"] == first["tokens_cached"]
        assert (await engine.post("/slots/1?action=restore", {"filename": "s"})).json()["n_restored"] == first["tokens_cached"]
        again = (
            await engine.post("/completion", {"prompt": "one two", "id_slot": 1, "n_predict": 4, "return_tokens": True})
        ).json()
        assert again["tokens"] == first["tokens"]
        assert again["timings"]["cache_n"] == first["tokens_evaluated"] - 1


async def test_requests_that_are_being_read_join_the_first_batch(engine: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop with nothing to do is woken some turns of the event loop after a request, not at once."""
    wake, knocked = engine.runner._wake, asyncio.Event()
    monkeypatch.setattr(wake, "set", knocked.set)
    task = asyncio.create_task(engine.post("/completion", {"prompt": "a", "n_predict": 2}))
    while not engine.runner._inbox:
        await asyncio.sleep(0)
    turns = 0
    while not knocked.is_set():
        turns += 1
        await asyncio.sleep(0)
    monkeypatch.undo()
    wake.set()
    assert (await task).status_code == 200
    assert 2 <= turns <= 5
