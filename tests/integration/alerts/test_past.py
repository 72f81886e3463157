"""A rule against detail and rollups that an observer really wrote."""

from __future__ import annotations

import time

import pytest
from asgiref.sync import sync_to_async

from scheduler_api.alerts import past
from scheduler_api.alerts.kinds import Kind, Spec
from tests.integration.scheduler_api.conftest import observing, register
from tests.support.stub_servers import FakeEngine, iteration, running
from tests.support.tasks import ended

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


def starving(threshold_s: float) -> Spec:
    return Spec(0, Kind.STARVING, None, threshold_s, for_s=0.0, clear_s=10.0)


async def test_chat_waited_forty_seconds_for_doc_a_minute_ago() -> None:
    with running(FakeEngine()) as engine:
        t = time.time() - 60
        alone = [iteration(i, t + i, prompt=[[0, 100]], ms=900) for i in range(1, 41)]
        both = [iteration(i, t + i, prompt=[[0, 100]], gen=[[1, 1]], ms=900) for i in range(41, 50)]
        engine.iterations = [*alone, *both]
        chat = {"submitted_at": t + 1, "first_visit_at": t + 41, "prompt_done_at": t + 41.9, "finished_at": t + 49.9}
        engine.tasks = [
            ended(1, i=49, slot=0, client="doc", submitted_at=t, first_visit_at=t + 1, finished_at=t + 49.9),
            ended(2, i=49, slot=1, client="chat", **chat, assigned_at=t + 1, first_token_at=t + 41.9),
        ]
        server = await sync_to_async(register)("local", "engine", engine.url)
        async with observing() as watching:
            await watching.until(server, lambda state: len(state["tasks"]) == 2)
            live = await sync_to_async(past.test)(starving(30.0), [server])
        after = await sync_to_async(past.test)(starving(30.0), [server])
        longer = await sync_to_async(past.test)(starving(45.0), [server])
    for told in (live, after):
        ((name, text),) = told.minutes
        assert name == "local"
        assert text.startswith("It would have opened once, for 10 s, in the last ")
    assert longer.minutes[0][1].startswith("It would not have opened in the last ")
    assert "had a stall over 30 s, once, the longest 40 s." in after.days[0][1]
