"""A guard rail that cannot reach its server: tried again, then told, with what happens next."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert
from scheduler_api.models import PolicyChange, Server
from scheduler_api.observer.leases import of_server
from scheduler_api.observer.policing import AGAIN_S, Policing
from scheduler_api.policies import guarding
from scheduler_api.policies.models import PolicyGuard
from tests.support.alerts import rule
from tests.support.observers import claimed
from tests.support.stub_servers import FakeEngine, running, unused_port

pytestmark = pytest.mark.django_db(transaction=True)


def guarded(url: str) -> PolicyGuard:
    server = Server.objects.create(name="local", kind="engine", base_url=url)
    change = PolicyChange.objects.create(
        server=server, actor_name="mira", old={"prefill_order": "physical"}, changes={"prefill_order": "rotating"}, version=1,
        outcome="applied",
    )  # fmt: skip
    condition = {"metric": "error_rate", "over": 0.1, "for_s": 60, "samples": 1}
    until = timezone.now() + timedelta(hours=1)
    return PolicyGuard.objects.create(
        server=server,
        change=change,
        version=1,
        changed_at=0.0,
        back_to={"prefill_order": "physical"},
        conditions=[condition],
        until=until,
    )


def state(now: float) -> dict[str, object]:
    task = {"finished_at": now, "reason": "error", "submitted_at": now - 1, "first_token_at": None}
    policy = {"version": 1, "requested": {"prefill_order": "rotating"}}
    return {
        "t": now,
        "health": {"state": "up"},
        "info": {},
        "policy": policy,
        "tasks": [task],
        "slots": [],
        "queue": {"depth": 0},
    }


async def test_it_is_tried_three_times_and_then_says_when_the_server_goes_back() -> None:
    guard = await sync_to_async(guarded)(f"http://127.0.0.1:{unused_port()}")
    await sync_to_async(rule)(Kind.GUARD_RAIL)
    shown = {guard.server_id: state(1000.0)}
    lease = await sync_to_async(claimed)(of_server(guard.server_id))
    policing = Policing(lambda: shown, lambda _: lease, lambda _: None)
    for now in (1000.0, 1001.0, 1000.0 + AGAIN_S, 1000.0 + 2 * AGAIN_S):
        shown[guard.server_id] = state(now)
        await policing.round(now)
    await sync_to_async(guard.refresh_from_db)()
    assert guard.state == "failed"
    assert "error rate 100 %" in guard.text
    assert "The server goes back by itself at" in guard.text
    assert await sync_to_async(PolicyChange.objects.filter(outcome="failed", actor_name="guard rail").count)() == 3
    assert "could not put change" in (await sync_to_async(Alert.objects.get)()).text
    await policing.round(1100.0)
    assert await sync_to_async(PolicyChange.objects.filter(outcome="failed").count)() == 3


async def test_a_policy_that_somebody_changed_already_ends_it_quietly() -> None:
    with running(FakeEngine(version=7)) as engine:
        guard = await sync_to_async(guarded)(engine.url)
        assert await sync_to_async(guarding.pull)(guard, "error rate 50 %")
        await sync_to_async(guard.refresh_from_db)()
        assert (guard.state, engine.version) == ("ended", 7)
        assert not await sync_to_async(Alert.objects.exists)()
