"""Alerts from a server that is really watched: they open, stay over an observer's restart, and close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from asgiref.sync import sync_to_async

from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert, Rule
from scheduler_api.models import Server
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.alerts import rule
from tests.support.stub_servers import FakeEngine, engine_slot, running, unused_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


async def alerts() -> list[Alert]:
    return await sync_to_async(lambda: list(Alert.objects.order_by("pk")))()


async def until(condition: Callable[[list[Alert]], bool], timeout: float = 15.0) -> list[Alert]:
    found: list[Alert] = []
    try:
        async with asyncio.timeout(timeout):
            while True:
                found = await alerts()
                if condition(found):
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"It never came true: {found}") from None


async def quick(kind: Kind, threshold_s: float = 0.0) -> Rule:
    return await sync_to_async(rule)(kind, threshold_s=threshold_s, for_s=1.0, clear_s=2.0)


async def a_server(port: int) -> Server:
    return await sync_to_async(register)("local", "engine", f"http://127.0.0.1:{port}")


async def test_a_dead_server_opens_one_alert_that_outlives_the_observer_and_closes_when_it_answers() -> None:
    port = unused_port()
    server = await a_server(port)
    await quick(Kind.DOWN, 300.0)
    async with observing():
        (first,) = await until(lambda found: len(found) == 1)
        assert (first.server_id, first.text, first.closed_at) == (server.pk, "Down: connection refused.", None)
    async with observing():
        await asyncio.sleep(5)
        assert [(each.pk, each.closed_at) for each in await alerts()] == [(first.pk, None)]
        with running(FakeEngine(), port):
            (closed,) = await until(lambda found: found[0].closed_at is not None)
    assert closed.pk == first.pk
    assert closed.closed_why == ""


async def test_a_client_starves_while_another_is_served() -> None:
    await quick(Kind.STARVING, 2.0)
    with running(FakeEngine()) as engine:
        server = await a_server(int(engine.url.rpartition(":")[2]))
        doc = engine_slot(0, state="prompt", task=1, n_prompt=90_000, client="doc")
        waits = "batch full, slot 0 took 2048 of 2048"
        chat = engine_slot(1, state="waiting", task=2, n_prompt=40, client="chat", waiting_for=waits)
        engine.slots = [doc, chat]

        async def compute() -> None:
            while True:
                engine.slots = [engine.slots[0] | {"n_processed": engine.slots[0]["n_processed"] + 100}, engine.slots[1]]
                engine.tell()
                await asyncio.sleep(0.1)

        computing = asyncio.create_task(compute())
        async with observing():
            (opened,) = await until(lambda found: len(found) == 1)
            assert (opened.server_id, opened.client, opened.slot, opened.task) == (server.pk, "chat", 1, 2)
            assert opened.text.startswith("chat in slot 1 got no token for ")
            assert opened.text.endswith(f"while others did: {waits}.")
            engine.slots = [engine.slots[0], engine_slot(1)]
            (closed,) = await until(lambda found: found[0].closed_at is not None)
            assert closed.peak_s >= 2.0
        computing.cancel()


async def test_a_rule_that_is_switched_off_closes_its_alert_and_says_why() -> None:
    await a_server(unused_port())
    down = await quick(Kind.DOWN)
    async with observing():
        await until(lambda found: len(found) == 1)
        await sync_to_async(lambda: Rule.objects.filter(pk=down.pk).update(enabled=False))()
        (closed,) = await until(lambda found: found[0].closed_at is not None)
    assert "its rule was switched off" in closed.closed_why


async def test_a_rule_that_is_deleted_closes_its_alert() -> None:
    await a_server(unused_port())
    down = await quick(Kind.DOWN)
    async with observing():
        await until(lambda found: len(found) == 1)
        await sync_to_async(lambda: Rule.objects.get(pk=down.pk).delete())()
        await until(lambda found: found[0].closed_at is not None)
        await asyncio.sleep(4)
        assert len(await alerts()) == 1
