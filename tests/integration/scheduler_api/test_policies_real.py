"""Policies of a real engine under an observer: deadlines, changes from elsewhere, restarts and guard rails are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import httpx2
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from scheduler_api import policies, servers
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert
from scheduler_api.audit import selectors as trail
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.exceptions import SwitchRefused
from scheduler_api.models import PolicyChange, Server
from scheduler_api.observer import policing
from scheduler_api.policies import drifting
from scheduler_api.policies.guards import Condition, Metric
from scheduler_api.policies.models import PolicyDrift, PolicyGuard, PolicySeen
from tests.integration.scheduler_api.conftest import observing
from tests.support.alerts import rule
from tests.support.engine import EngineProcess, running_engine

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

SIMULATED = ("--backend", "simulated", "--parallel", "2", "--ctx-size", "65536", "--no-kv-unified")


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policing, "GRACE_S", 0.5)


@pytest.fixture
def engine() -> Iterator[EngineProcess]:
    with running_engine(*SIMULATED) as process:
        yield process


async def until[T](ask: Callable[[], T | None], timeout: float = 10.0) -> T:
    async with asyncio.timeout(timeout):
        while (found := await sync_to_async(ask)()) is None:
            await asyncio.sleep(0.05)
    return found


async def known(server: Server) -> None:
    """Until the observer knows the policy, so that what comes next is a change."""
    await until(lambda: PolicySeen.objects.filter(server=server, started_at__isnull=False).first())


def switch(server: Server, **options: object) -> PolicyChange:
    given = {"actor": None, "actor_name": "mira", "reason": "chat waits"} | options
    changes = given.pop("changes", {"phase": "barrier"})
    return policies.switch(server, changes, **given)  # type: ignore[arg-type]


async def test_a_deadline_is_told_as_the_servers_own_doing(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    async with observing():
        await known(server)
        await sync_to_async(switch)(server, ttl_s=0.8)
        row = await until(lambda: PolicyChange.objects.filter(outcome="seen").first())
        assert (row.actor_name, row.changes, row.reason) == ("the server", {"phase": "continuous"}, "went back at its deadline")
        entry = await sync_to_async(AuditEntry.objects.get)(action="policy.reverted")
        assert (entry.actor_name, entry.outcome, entry.ref) == ("the server", "seen", f"policychange {row.pk}")
        assert not await sync_to_async(PolicyDrift.objects.exists)()


async def test_a_change_from_elsewhere_is_drift_and_is_put_back_by_choice(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    operator = await sync_to_async(User.objects.create_user)("mira")
    async with observing():
        await known(server)
        await sync_to_async(switch)(server)  # its own: no drift
        await asyncio.to_thread(engine.set_policy, phase="continuous", prefill_order="fair")
        drift = await until(lambda: PolicyDrift.objects.select_related("server").first())
        assert (drift.cause, drift.differences()) == ("elsewhere", {"phase": "barrier", "prefill_order": "physical"})
        change = await sync_to_async(drifting.reapply)(drift, operator)
        await sync_to_async(drift.refresh_from_db)()
        assert (drift.state, drift.settled_by, change.outcome) == ("reapplied", "mira", "applied")
        assert engine.get("/scheduler")["policy"]["requested"]["prefill_order"] == "physical"
        stale = await sync_to_async(PolicyDrift.objects.select_related("server").get)(pk=drift.pk)
        with pytest.raises(SwitchRefused):  # the version that was found is gone
            await sync_to_async(drifting.reapply)(stale, operator)
    said = [(each.actor_name, each.action) for each in await sync_to_async(lambda: list(AuditEntry.objects.order_by("seq")))()]
    assert ("unknown", "policy.drifted") in said
    assert isinstance(await sync_to_async(trail.verify)(), Head)


async def test_a_restart_that_forgets_the_policy_is_drift(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    port = engine.url.rpartition(":")[2]
    async with observing():
        await known(server)
        await sync_to_async(switch)(server)
        await asyncio.to_thread(engine.stop)
        again = running_engine(*SIMULATED, "--port", port)
        await asyncio.to_thread(again.__enter__)
        try:
            drift = await until(lambda: PolicyDrift.objects.first())
        finally:
            again.__exit__(None, None, None)
    assert (drift.cause, drift.differences(), drift.version) == ("restart", {"phase": "barrier"}, 1)
    row = await sync_to_async(PolicyChange.objects.get)(outcome="seen")
    assert (row.actor_name, row.changes) == ("the server", {"phase": "continuous"})


async def wait(url: str) -> None:
    body = {"prompt": [100] * 20, "n_predict": 20_000, "ignore_eos": True}
    async with httpx2.AsyncClient(timeout=60) as client:
        await client.post(url + "/completion", json=body)


async def test_a_guard_rail_puts_a_change_back_and_says_why(engine: EngineProcess) -> None:
    server = await sync_to_async(servers.register)("local", engine.url)
    await sync_to_async(rule)(Kind.GUARD_RAIL)
    async with observing():
        await known(server)
        guard = Condition(Metric.OLDEST_WAIT, over=0.3, for_s=0.5)
        change = await sync_to_async(switch)(server, guards=[guard], changes={"prefill_order": "rotating"})
        assert change.ttl_s == 3600.0  # the net
        work: list[Awaitable[None]] = [asyncio.create_task(wait(engine.url)) for _ in range(3)]  # two slots: one waits
        found = await until(lambda: PolicyGuard.objects.filter(state="reverted").first())
        for task in work:
            task.cancel()  # type: ignore[attr-defined]
        await asyncio.gather(*work, return_exceptions=True)
    assert found.text.startswith("the oldest wait is ")
    policy = engine.get("/scheduler")["policy"]
    assert (policy["requested"]["prefill_order"], policy["reverts_at"]) == ("physical", None)
    entry = await sync_to_async(AuditEntry.objects.get)(action="policy.guarded")
    assert (entry.actor_name, entry.outcome) == ("guard rail", "done")
    assert "over 0.3 s for 0.5 s. It takes back change" in entry.why
    alert = await sync_to_async(Alert.objects.get)(kind="guard_rail")
    assert f"change {change.pk} by mira" in alert.text
