"""The evaluation's own troubles: a database that is away, and a start after another observer."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError

from scheduler_api.alerts import store
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert
from scheduler_api.models import Server
from scheduler_api.observer import alerting
from scheduler_api.observer.alerting import Lookout
from scheduler_api.observer.leases import ALERTS
from tests.support.alerts import rule
from tests.support.observers import claimed
from tests.unit.alerts.states import NOW, slot, state

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    """The states and the time that a lookout sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
        self.now, self.server, self.shown = NOW, server, state(health="down", text="Down: connection refused")
        self.lease = claimed(ALERTS)
        monkeypatch.setattr(alerting, "time", lambda: self.now)

    def states(self) -> dict[int, Any]:
        return {self.server.pk: self.shown | {"t": self.now}}

    def lookout(self) -> Lookout:
        return Lookout(self.states, lambda: self.lease, lambda _: None)

    async def go(self, lookout: Lookout, seconds: int) -> None:
        for _ in range(seconds):
            await lookout._round()
            self.now += 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, Server.objects.create(name="bench", kind="engine", base_url="http://127.0.0.1:1"))


async def alerts() -> list[Alert]:
    return await sync_to_async(lambda: list(Alert.objects.order_by("pk")))()


async def test_what_cannot_be_written_waits_and_nothing_is_lost(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    await sync_to_async(rule)(Kind.DOWN, for_s=2.0, clear_s=2.0)
    lookout, write = clock.lookout(), store.write
    await clock.go(lookout, 1)

    def away(transitions: Any) -> None:
        raise DatabaseError("database is locked")

    monkeypatch.setattr(store, "write", away)
    await clock.go(lookout, 5)
    clock.shown = state()
    await clock.go(lookout, 5)
    assert await alerts() == []
    monkeypatch.setattr(store, "write", write)
    await clock.go(lookout, 8)
    (alert,) = await alerts()
    assert (alert.opened_at.timestamp(), alert.closed_at is not None) == (NOW + 2.0, True)


async def test_a_database_that_cannot_be_read_at_the_start_opens_nothing_twice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sync_to_async(rule)(Kind.DOWN, for_s=2.0, clear_s=2.0)
    await clock.go(clock.lookout(), 5)
    lookout, read = clock.lookout(), store.rules
    monkeypatch.setattr(store, "rules", lambda: (_ for _ in ()).throw(DatabaseError("away")))
    await clock.go(lookout, 10)
    monkeypatch.setattr(store, "rules", read)
    await clock.go(lookout, 20)
    assert len(await alerts()) == 1


async def test_a_stuck_slot_is_gone_on_from_and_closes_with_its_next_token(clock: Clock) -> None:
    await sync_to_async(rule)(Kind.STUCK_SLOT, threshold_s=60.0, for_s=2.0, clear_s=5.0)
    clock.shown = state(slots=[slot(3, made=7, client="chat")])
    await clock.go(clock.lookout(), 80)
    (opened,) = await alerts()
    lookout = clock.lookout()
    await clock.go(lookout, 30)
    (still,) = await alerts()
    assert (still.pk, still.closed_at) == (opened.pk, None)
    assert still.peak_s > 100.0
    clock.shown = state(slots=[slot(3, made=8, client="chat")])
    await clock.go(lookout, 10)
    (closed,) = await alerts()
    assert closed.closed_at is not None


async def test_a_starving_client_of_before_is_gone_on_from(clock: Clock) -> None:
    await sync_to_async(rule)(Kind.STARVING, threshold_s=30.0, for_s=0.0, clear_s=5.0)

    async def serve(lookout: Lookout, seconds: int) -> None:
        for _ in range(seconds):
            doc = slot(0, "prompt", done=int(clock.now - NOW), client="doc")
            clock.shown = state(slots=[doc, slot(1, "waiting", client="chat")])
            await clock.go(lookout, 1)

    await serve(clock.lookout(), 40)
    await serve(clock.lookout(), 30)
    (alert,) = await alerts()
    assert (alert.client, alert.closed_at) == ("chat", None)
    assert alert.peak_s > 60.0
