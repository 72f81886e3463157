"""Windows against a server: applied with a deadline at their end, left alone where somebody came between, never tried unseen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from scheduler_api.audit.models import AuditEntry
from scheduler_api.exceptions import RegistrationRefused
from scheduler_api.models import PolicyChange, Server
from scheduler_api.policies import scheduling
from scheduler_api.policies.drift import AT_DEADLINE
from scheduler_api.policies.models import PolicyWindow, WindowFiring
from tests.support.stub_servers import FakeEngine, running, unused_port

MONDAY = datetime(2026, 11, 30, tzinfo=UTC)
BEGIN, END = MONDAY + timedelta(hours=8), MONDAY + timedelta(hours=18)
ROTATING, PHYSICAL = {"prefill_order": "rotating"}, {"prefill_order": "physical"}


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with running(FakeEngine()) as server:
        yield server


@pytest.fixture
def server(db: None, engine: FakeEngine) -> Server:
    return Server.objects.create(name="local", kind="engine", base_url=engine.url)


def window(server: Server, by: User, **given: Any) -> PolicyWindow:
    values = {"days": [0, 1, 2, 3, 4], "begins": time(8), "ends": time(18), "inside": ROTATING, "outside": None} | given
    row = scheduling.keep(PolicyWindow(server=server, name="office", **values), by)
    PolicyWindow.objects.update(since=MONDAY - timedelta(days=30))
    return row


def fire(now: datetime, busy: str = "") -> list[WindowFiring]:
    return scheduling.fire_due(lambda server: busy, now)


def test_it_begins_with_a_deadline_at_its_end_once(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator)
    (firing,) = fire(BEGIN + timedelta(seconds=2))
    assert (firing.outcome, firing.text) == ("applied", "prefill order: physical to rotating")
    row = PolicyChange.objects.get()
    assert (row.actor_name, row.ttl_s, row.reason) == ("window office", 10 * 3600 - 2, "window office begins")
    assert fire(BEGIN + timedelta(seconds=4)) == []
    assert fire(END + timedelta(seconds=1)) == []  # the server goes back by itself


def test_it_ends_with_the_other_policy(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator, outside=PHYSICAL)
    fire(BEGIN)
    assert PolicyChange.objects.get().ttl_s == 10 * 3600 + scheduling.NET_S  # the net lies behind the console's own end
    (firing,) = fire(END)
    assert (firing.outcome, engine.requested) == ("applied", PHYSICAL)


def test_an_end_follows_the_servers_own_going_back(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator, outside={"prefill_order": "fair"})
    fire(BEGIN)
    engine.version, engine.requested, engine.reason = engine.version + 1, PHYSICAL, AT_DEADLINE
    assert fire(END + timedelta(hours=1))[0].outcome == "applied"
    assert engine.requested == {"prefill_order": "fair"}


def test_an_end_leaves_what_somebody_else_set_meanwhile(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator, outside=PHYSICAL)
    fire(BEGIN)
    engine.version, engine.requested = engine.version + 1, {"prefill_order": "fair"}
    (firing,) = fire(END)
    assert (firing.outcome, engine.requested) == ("refused", {"prefill_order": "fair"})
    assert "The policy was changed since the window began (version 2, now 3)" in firing.text
    entry = AuditEntry.objects.filter(action="window.missed").get()
    assert (entry.outcome, entry.why) == ("refused", firing.text)
    assert fire(END + timedelta(hours=1)) == []


def test_a_run_keeps_its_server(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator)
    (firing,) = fire(BEGIN, busy="Run 12 measures this server.")
    assert (firing.outcome, firing.text, engine.version) == ("refused", "Run 12 measures this server.", 1)


def test_a_server_that_is_away_is_tried_once_more_and_never_again(db: None, operator: User) -> None:
    away = Server.objects.create(name="gone", kind="engine", base_url=f"http://127.0.0.1:{unused_port()}")
    row = window(away, operator)
    assert fire(BEGIN)[0].text.endswith("It is tried once more.")
    assert fire(BEGIN + timedelta(seconds=5)) == []
    WindowFiring.objects.update(at=BEGIN)
    (second,) = fire(BEGIN + timedelta(seconds=31))
    assert (second.attempt, second.outcome) == (2, "failed")
    assert second.text.endswith("It is not tried again.")
    WindowFiring.objects.update(at=BEGIN)
    assert fire(BEGIN + timedelta(hours=1)) == []
    assert row.firings.count() == AuditEntry.objects.filter(action="window.missed").count() == 2


def test_a_worker_that_died_over_it_is_told_and_it_is_not_tried_again(server: Server, engine: FakeEngine, operator: User) -> None:
    row = window(server, operator)
    WindowFiring.objects.create(window=row, edge="begin", due=BEGIN)
    WindowFiring.objects.update(at=BEGIN)
    assert fire(BEGIN + timedelta(minutes=3)) == []
    assert row.firings.get().outcome == "failed"
    assert engine.version == 1


def test_a_console_that_was_off_at_the_beginning_says_how_late_it_is(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator)
    fire(BEGIN + timedelta(minutes=40))
    row = PolicyChange.objects.get()
    assert (row.reason, row.ttl_s) == ("window office begins, 2400 s late", 10 * 3600 - 2400)


def test_a_policy_that_is_there_already_is_left_to_whoever_set_it(server: Server, engine: FakeEngine, operator: User) -> None:
    window(server, operator, inside=PHYSICAL)
    assert fire(BEGIN)[0].outcome == "already"
    assert not PolicyChange.objects.exists()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"days": []}, "days"),
        ({"ends": time(8)}, "ends"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"inside": {}}, "inside"),
        ({"starts_at": END, "ends_at": BEGIN}, "ends_at"),
        ({"starts_at": BEGIN - timedelta(days=900), "ends_at": END - timedelta(days=899)}, "ends_at"),
    ],
)
def test_what_is_no_window_is_refused(server: Server, operator: User, given: dict[str, Any], field: str) -> None:
    with pytest.raises(RegistrationRefused) as refusal:
        window(server, operator, **given)
    assert refusal.value.field == field
