"""Telling and the watch over the observer, by the worker as it really runs: beat, broker, tasks."""

from __future__ import annotations

import time

import pytest
from django.utils import timezone

from scheduler_api import live
from scheduler_api.alerts import watchdog
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.models import Alert, Delivery, Outcome, Recipient
from scheduler_api.models import Server
from tests.integration.workers.conftest import WorkerProcess, wait_for
from tests.support.alerts import alert, rule
from tests.support.receivers import webhook


@pytest.fixture
def bench(transactional_db: None) -> Server:
    return Server.objects.create(name="bench", kind="engine", base_url="http://127.0.0.1:1")


def rows() -> list[tuple[str, str, int]]:
    return list(Delivery.objects.order_by("pk").values_list("transition", "outcome", "attempts"))


def test_each_transition_is_told_once(worker: WorkerProcess, bench: Server) -> None:
    with webhook() as receiver:
        starving = rule(Kind.STARVING)
        starving.recipients.set([Recipient.objects.create(name="chat", channel="webhook", address=receiver.url, secret="s")])
        found = alert(starving, bench)
        wait_for(lambda: rows() == [("opened", Outcome.SENT, 1)], 20, rows)
        Alert.objects.filter(pk=found.pk).update(closed_at=timezone.now())
        wait_for(lambda: rows() == [("opened", Outcome.SENT, 1), ("closed", Outcome.SENT, 1)], 20, rows)
        time.sleep(5)
    assert [got.json()["event"] for got in receiver.got] == ["alert.opened", "alert.closed"]
    assert len({got.headers["x-slotboard-delivery"] for got in receiver.got}) == 2


def test_what_was_not_taken_is_sent_again_under_the_same_number(worker: WorkerProcess, bench: Server) -> None:
    with webhook(503, 200) as receiver:
        down = rule(Kind.DOWN)
        down.recipients.set([Recipient.objects.create(name="chat", channel="webhook", address=receiver.url)])
        alert(down, bench)
        wait_for(lambda: rows() == [("opened", Outcome.SENT, 2)], 30, rows)
    assert len(receiver.got) == 2
    assert receiver.got[0].body == receiver.got[1].body


def test_an_observer_that_reports_no_more_opens_an_alert_and_its_return_closes_it(worker: WorkerProcess, bench: Server) -> None:
    rule(Kind.OBSERVER_LOST, threshold_s=3.0, clear_s=2.0)
    live.client().set(live.HEARTBEAT_KEY, repr(time.time()))
    time.sleep(1)
    assert not Alert.objects.exists()
    wait_for(lambda: Alert.objects.filter(closed_at=None).exists(), 30)
    assert "No observer has reported for" in Alert.objects.get().text

    def reports_again() -> bool:
        live.client().set(live.HEARTBEAT_KEY, repr(time.time()))
        return Alert.objects.filter(closed_at__isnull=False).exists()

    wait_for(reports_again, 20)
    assert Alert.objects.count() == 1


@pytest.mark.usefixtures("valkey")
class TestWatchdog:
    """One look, without a worker."""

    def test_a_console_whose_observer_never_ran_has_no_alert(self, bench: Server) -> None:
        rule(Kind.OBSERVER_LOST, threshold_s=0.0)
        watchdog.look()
        assert not Alert.objects.exists()

    def test_without_a_server_to_watch_nobody_misses_the_observer(self, transactional_db: None) -> None:
        rule(Kind.OBSERVER_LOST, threshold_s=5.0)
        live.client().set(live.HEARTBEAT_KEY, repr(time.time() - 60))
        watchdog.look()
        assert not Alert.objects.exists()

    def test_a_console_that_starts_again_does_not_miss_an_observer_that_is_about_to_come(self, bench: Server) -> None:
        rule(Kind.OBSERVER_LOST, threshold_s=5.0)
        live.client().set(live.HEARTBEAT_KEY, repr(time.time() - 3600))
        watchdog.look()
        assert not Alert.objects.exists()
        live.client().set(live.HEARTBEAT_KEY, repr(time.time()))
        watchdog.look()
        assert not Alert.objects.exists()

    def test_looks_of_several_workers_open_one(self, bench: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watchdog, "GRACE_S", 0.0)
        rule(Kind.OBSERVER_LOST, threshold_s=5.0)
        live.client().set(live.HEARTBEAT_KEY, repr(time.time() - 60))
        for _ in range(3):
            watchdog.look()
        assert Alert.objects.get().server is None


def test_a_valkey_that_is_away_tells_nothing(bench: Server) -> None:
    rule(Kind.OBSERVER_LOST, threshold_s=0.0)
    assert watchdog.silence(time.time()) is None
    watchdog.look()
    assert not Alert.objects.exists()
