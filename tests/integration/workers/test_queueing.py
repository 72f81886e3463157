"""Runs that wait for their time or for the run before them, with the database alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from scheduler_api.models import Server, ServerKind
from tests.integration.workers.conftest import fresh
from workers import experiments, preflight, queueing, reaping, selectors
from workers.errors import BrokerDown, ExperimentRefused
from workers.models import Run, RunState


@pytest.fixture
def server(db: None) -> Server:
    return Server.objects.create(name="bench", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:1")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs that were handed to the broker; what the target can do is another test's matter."""
    found: list[int] = []
    for module in (experiments, queueing, reaping):
        monkeypatch.setattr(module, "send", lambda run: found.append(run.pk))
    monkeypatch.setattr(preflight, "survey", lambda server, *, adapters=False: _anything())
    return found


def _anything() -> Any:
    from workers.load.dialects import Abilities
    from workers.survey import Survey

    return Survey(Abilities(what="A server", token_ids=True, pins=True, labels=True, switches=False))


def start(server: Server, **wish: Any) -> Run:
    equal: dict[str, Any] = {"policy_a": {}, "policy_b": {}, "repetitions": 1, "scale": 1.0, "share": None, "by": None}
    return experiments.start_run(**{"scenario": "late-arrival", "server": server, **equal, **wish})


def test_a_second_run_is_refused_or_waits_behind_the_first(server: Server, sent: list[int], operator: User) -> None:
    first = start(server)
    with pytest.raises(ExperimentRefused, match=f"under way \\(run {first.pk}\\); stop it, wait for its end, or queue behind it"):
        start(server)
    second, third = start(server, wait=True, by=operator), start(server, wait=True)
    assert (second.state, second.progress_text) == (RunState.WAITING, f"Waiting for the end of run {first.pk}")
    assert second.active
    assert queueing.dispatch() == []
    Run.objects.filter(pk=first.pk).update(state=RunState.FINISHED)
    with pytest.raises(ExperimentRefused, match=f"an experiment waits for it \\(run {second.pk}\\)"):
        start(server)
    assert queueing.dispatch() == [second.pk]
    assert queueing.dispatch() == []
    assert sent == [first.pk, second.pk]
    assert (fresh(second).state, fresh(third).state) == (RunState.QUEUED, RunState.WAITING)
    assert [line["text"] for line in selectors.log(second)] == [
        f"Waiting for the end of run {first.pk} by mira.",
        "Its turn has come: sent to the workers.",
    ]


def test_a_scheduled_run_waits_for_its_moment_and_for_a_free_server(server: Server, sent: list[int]) -> None:
    later = start(server, not_before=timezone.now() + timedelta(hours=1))
    assert (later.state, later.progress_text) == (RunState.WAITING, "Waiting for its time")
    now = start(server)  # the server is free until then
    Run.objects.filter(pk=later.pk).update(not_before=timezone.now() - timedelta(seconds=1))
    reaping.reap()
    assert fresh(later).state == RunState.WAITING
    Run.objects.filter(pk=now.pk).update(state=RunState.STOPPED)
    reaping.reap()
    assert fresh(later).state == RunState.QUEUED
    assert sent == [now.pk, later.pk]


def test_a_moment_that_has_passed_starts_at_once_and_one_without_a_zone_is_refused(server: Server, sent: list[int]) -> None:
    run = start(server, not_before=timezone.now() - timedelta(seconds=1))
    assert (run.state, sent) == (RunState.QUEUED, [run.pk])
    with pytest.raises(ExperimentRefused, match="needs a time zone"):
        start(server, not_before=datetime(2030, 1, 1))


def test_the_longest_due_goes_first_and_other_servers_are_not_held_up(server: Server, sent: list[int]) -> None:
    other = Server.objects.create(name="other", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:2")
    busy = start(server)
    behind, elsewhere = start(server, wait=True), start(other, not_before=timezone.now() + timedelta(hours=1))
    early = start(server, not_before=timezone.now() + timedelta(hours=1))
    Run.objects.filter(pk=busy.pk).update(state=RunState.FAILED)
    Run.objects.filter(pk__in=(elsewhere.pk, early.pk)).update(not_before=timezone.now() - timedelta(minutes=1))
    assert queueing.dispatch() == [elsewhere.pk, early.pk]
    assert fresh(behind).state == RunState.WAITING


def test_without_a_broker_it_goes_on_waiting(server: Server, sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = start(server), start(server, wait=True)
    Run.objects.filter(pk=first.pk).update(state=RunState.FINISHED)

    def down(run: Run) -> None:
        raise BrokerDown

    monkeypatch.setattr(queueing, "send", down)
    assert queueing.dispatch() == []
    assert fresh(second).state == RunState.WAITING


def test_a_server_that_was_switched_off_meanwhile_fails_the_run_and_not_those_behind_it(server: Server, sent: list[int]) -> None:
    first, second = start(server), start(server, wait=True)
    Run.objects.filter(pk=first.pk).update(state=RunState.FINISHED)
    Server.objects.filter(pk=server.pk).update(enabled=False)
    assert queueing.dispatch() == []
    assert (fresh(second).state, second.error) == (RunState.FAILED, "bench is switched off in the registry.")
    assert second.finished_at is not None


def test_a_waiting_run_stops_at_once(server: Server, sent: list[int], operator: User) -> None:
    start(server)
    waiting = start(server, wait=True)
    experiments.request_stop(waiting, operator)
    assert (waiting.state, waiting.stop_reason, waiting.active) == (RunState.STOPPED, "stopped by mira", False)
    assert selectors.log(waiting)[-1]["text"] == "Stopped by mira."
