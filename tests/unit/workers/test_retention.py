"""What is dropped once it is old enough, and what never is."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from allauth.usersessions.models import UserSession
from axes.models import AccessAttempt, AccessLog
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
from pytest_django.fixtures import Settings

from dashboard.people.models import ShareLink
from scheduler_api import audit
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert, Delivery, Silence
from scheduler_api.audit import selectors
from scheduler_api.audit.chain import Head
from scheduler_api.audit.models import AuditEntry
from scheduler_api.models import PolicyChange, Rollup, Server
from scheduler_api.policies.models import PolicyWindow, WindowFiring
from tests.support.alerts import alert, rule
from workers import retention
from workers.app import app
from workers.models import Block, LogLine, Run, RunState, Sample

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def server() -> Server:
    return Server.objects.create(name="bench", kind="engine", base_url="http://127.0.0.1:1", enabled=False)


def new_run(server: Server, created: datetime, finished: datetime | None, state: str = RunState.FINISHED) -> Run:
    run = Run.objects.create(scenario="warm-behind-cold", server=server, repetitions=1, seed=1, state=state, finished_at=finished)
    Run.objects.filter(pk=run.pk).update(created_at=created)
    block = Block.objects.create(run=run, index=0, started_at=created)
    Sample.objects.create(run=run, block=block, role="cold", sent_at=1.0)
    LogLine.objects.create(run=run, at=created, source="worker", text="Began.")
    return run


def test_runs_are_kept_for_good_unless_a_time_is_set(server: Server, now: datetime, settings: Settings) -> None:
    long_ago = now - 3000 * DAY
    run = new_run(server, long_ago, long_ago)
    assert "runs" not in retention.drop_old(now)
    settings.KEEP_RUNS_DAYS = 365
    user = User.objects.create_user("ada")
    ShareLink.objects.create(made_by=user, run=run, digest="d", expires_at=long_ago)
    kept = [
        new_run(server, long_ago, now - 10 * DAY),
        new_run(server, now - DAY, long_ago),  # read from a file yesterday
        new_run(server, long_ago, None, RunState.QUEUED),
        new_run(server, long_ago, None, RunState.WAITING),
    ]
    assert retention.drop_old(now)["runs"] == 1
    assert set(Run.objects.all()) == set(kept)
    assert Sample.objects.count() == Block.objects.count() == LogLine.objects.count() == len(kept)
    assert not ShareLink.objects.exists()
    row = AuditEntry.objects.get(action="run.dropped")
    assert (row.ref, row.actor_name, row.why) == (f"run {run.pk}", "retention", "Runs are kept for 365 days.")


def test_alerts_messages_silences_and_firings_go_after_their_time(server: Server, now: datetime, settings: Settings) -> None:
    of = rule(Kind.STARVING)
    old = alert(of, server, closed=True)
    Alert.objects.filter(pk=old.pk).update(closed_at=now - 91 * DAY)
    still = alert(of, server, key="client b", ago_s=200 * 86_400.0)
    for who, ended in (("old", now - 91 * DAY), ("new", now - 89 * DAY)):
        Silence.objects.create(until=ended, by_name="mira", reason=who)
    Delivery.objects.create(alert=old, transition="opened", recipient_name="chat", channel="webhook")
    window = PolicyWindow.objects.create(server=server, name="nights", since=now)
    for due in (now - 91 * DAY, now - DAY):
        WindowFiring.objects.create(window=window, edge="begin", due=due)
    dropped = retention.drop_old(now)
    assert (dropped["alerts"], dropped["silences"], dropped["firings of windows"]) == (1, 1, 1)
    assert list(Alert.objects.all()) == [still]
    assert not Delivery.objects.exists()
    settings.KEEP_ALERTS_DAYS = 0
    assert "alerts" not in retention.drop_old(now + 1000 * DAY)


def test_sums_of_servers_that_nobody_watches_go_too(server: Server, now: datetime) -> None:
    for days in (31, 29):
        Rollup.objects.create(server=server, t=int((now - days * DAY).timestamp()), step_s=600, bounds=1)
    assert retention.drop_old(now)["sums of minutes"] == 1
    assert Rollup.objects.count() == 1


def test_sessions_that_ran_out_and_old_logins_go(now: datetime) -> None:
    user = User.objects.create_user("ada")
    for key, ends in (("old", now - DAY), ("live", now + DAY)):
        Session.objects.create(session_key=key, session_data="", expire_date=ends)
        UserSession.objects.create(user=user, session_key=key, ip="192.0.2.1", user_agent="x", data={})
    for ip, days in (("192.0.2.1", 91), ("192.0.2.2", 1)):
        log = AccessLog.objects.create(username="ada", ip_address=ip)
        attempt = AccessAttempt.objects.create(username="ada", ip_address=ip, failures_since_start=1)
        AccessLog.objects.filter(pk=log.pk).update(attempt_time=now - days * DAY)
        AccessAttempt.objects.filter(pk=attempt.pk).update(attempt_time=now - days * DAY)
    dropped = retention.drop_old(now)
    assert dropped["sessions"] >= 1
    assert dropped["logins"] == 2
    assert [each.session_key for each in Session.objects.all()] == ["live"]
    assert [each.session_key for each in UserSession.objects.all()] == ["live"]


def test_the_trail_and_the_changes_of_policies_are_never_dropped(server: Server, now: datetime, settings: Settings) -> None:
    settings.KEEP_RUNS_DAYS = settings.KEEP_ALERTS_DAYS = settings.KEEP_LOGINS_DAYS = 1
    PolicyChange.objects.create(server=server, actor_name="mira", outcome="applied")
    audit.record("policy.switched", "bench", actor_name="mira")
    retention.drop_old(now + 10_000 * DAY)
    assert PolicyChange.objects.count() == 1
    assert selectors.verify() == Head(1, AuditEntry.objects.get().hash)


def test_the_upkeep_worker_sees_to_it() -> None:
    (entry,) = (each for each in app.conf.beat_schedule.values() if each["task"] == "workers.drop_old")
    assert entry["schedule"] <= 3600
    assert app.conf.task_routes["workers.drop_old"] == {"queue": "upkeep"}
    app.loader.import_default_modules()
    assert "runs" not in app.tasks["workers.drop_old"]()
