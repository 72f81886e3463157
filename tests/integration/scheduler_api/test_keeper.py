"""What the observer writes down beside its frames, and what becomes of it when a store is away."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from scheduler_api.history import detail, store
from scheduler_api.models import Rollup, Server
from scheduler_api.observer import keeper
from scheduler_api.observer.holding import Holder
from scheduler_api.observer.keeper import Keeper
from scheduler_api.observer.leases import of_server
from scheduler_api.observer.memory import Memory
from scheduler_api.observer.publisher import publisher
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.observers import hold
from tests.support.stub_servers import FakeEngine, engine_slot, iteration, running
from tests.support.valkey import ValkeyProcess, running_valkey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

PARTS: dict[str, Any] = {"queue": {"depth": 1}, "slots": [engine_slot(0)], "policy": {"effective": {"phase": "barrier"}}}


def seen(memory: Memory, start: float, seconds: float) -> None:
    """The memory of a server that was looked at four times a second."""
    steps = int(seconds * 4)
    for step in range(steps + 1):
        memory.look(start + step / 4, "", PARTS, {"kv_used": 7}, {})


async def until(condition: Any, timeout: float = 8.0) -> None:
    async with asyncio.timeout(timeout):
        while not await sync_to_async(condition)():
            await asyncio.sleep(0.05)


async def test_minutes_wait_for_a_database_that_is_away_and_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch, valkey: ValkeyProcess
) -> None:
    server = await sync_to_async(register)("local", "engine", "http://127.0.0.1:9")
    memory, real, away = Memory(), store.write, True

    def write(*args: Any) -> None:
        if away:
            raise OperationalError("database is locked")
        real(*args)

    monkeypatch.setattr(store, "write", write)
    monkeypatch.setattr(keeper, "LOOK_S", 0.02)
    monkeypatch.setattr(keeper, "RETRY_S", 0.05)
    start = time.time() // 60 * 60 - 600
    seen(memory, start, 130)
    async with publisher(valkey.url) as there:
        there.leases.lease_s = 600.0
        await hold(there.leases, of_server(server.pk))
        task = asyncio.create_task(Keeper(server.pk, "local", there).run(lambda: memory))
        await until(lambda: "history" in memory.missing)
        assert "kept here" in memory.missing["history"]
        seen(memory, start + 130, 60)
        away = False
        await until(lambda: not memory.missing)
        rows: list[Any] = await sync_to_async(
            lambda: [(row.t - start, row.observed_s, row.queue_mean, row.kv_used_max) for row in Rollup.objects.all()]
        )()
        assert rows == [(60.0 * n, pytest.approx(60, abs=0.3), 1.0, 7) for n in range(3)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    last = await Rollup.objects.alast()
    assert last is not None
    assert last.t == start + 180
    assert last.observed_s == pytest.approx(10, abs=0.3)  # the unfinished minute, at the end


async def test_a_valkey_that_is_away_costs_the_detail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await sync_to_async(register)("local", "engine", "http://127.0.0.1:9")
    memory = Memory()
    monkeypatch.setattr(keeper, "LOOK_S", 0.02)
    with running_valkey() as own:
        async with publisher(own.url) as there:
            await hold(there.leases, of_server(server.pk))
            holder = Holder(there.leases)
            task = asyncio.create_task(Keeper(server.pk, "local", there).run(lambda: memory))
            own.stop()
            start = time.time() // 60 * 60 - 600
            seen(memory, start, 70)
            await until(lambda: Rollup.objects.exists())
            own.start()
            await holder.round()
            seen(memory, start + 70, 10)
            async with asyncio.timeout(8):
                while not await there._client.zcard(detail.index_key(server.pk)):
                    await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_server_that_does_not_answer_is_a_gap_with_its_reason() -> None:
    engine = FakeEngine(iterations=[iteration(1, time.time(), gen=[[0, 1]])])
    began = time.time()
    async with observing() as watching:
        with running(engine):
            server: Server = await sync_to_async(register)("local", "engine", engine.url)
            await watching.until(server, lambda state: state["health"]["state"] == "up" and bool(state["iterations"]))
        await watching.until(server, lambda state: state["health"]["state"] == "down")
        await asyncio.sleep(0.6)
    found = detail.read(server.pk, began, time.time() + 1)
    assert [each["i"] for each in found.iterations] == [1]
    down = [gap for gap in found.gaps if gap[2].startswith("Down: connection")]
    assert down[-1][1] - down[0][0] >= 0.5
    assert all(later[0] == earlier[1] for earlier, later in pairwise(down))
