"""Who holds a shard, and what its run makes of it, with the database alone; what it sends is another test's matter."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from scheduler_api.models import Server, ServerKind
from workers import refclock, shardrun, tasks
from workers.errors import RunFailed, RunStopped, ShardLost
from workers.lease import Watch
from workers.load.clock import ClientClock
from workers.models import Run, RunState, Shard
from workers.refclock import Offset
from workers.sharding import Crew


@pytest.fixture
def run(transactional_db: None) -> Run:
    server = Server.objects.create(name="bench", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:1")
    held: dict[str, Any] = {"state": RunState.RUNNING, "lease": "mine", "heartbeat_at": timezone.now()}
    return Run.objects.create(scenario="x", server=server, repetitions=1, seed=1, shards=2, **held)


@pytest.fixture
def shard(run: Run) -> Shard:
    return Shard.objects.create(run=run, number=2, run_lease="mine")


@pytest.fixture(autouse=True)
def _same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refclock, "measure", lambda clock: Offset(0.0, 0.001))


def fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def sender(*_: object) -> None:
        raise error

    monkeypatch.setattr(shardrun, "Sender", sender)


def crew(run: Run) -> Crew:
    return Crew(run, "mine", Watch(run.pk, "mine"), ClientClock())


def test_what_a_shard_cannot_do_ends_the_run_in_its_words(run: Run, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, RunFailed("bench cannot be reached from here."))
    assert shardrun.serve(shard.pk, "other pid 7") is True
    told = crew(run)._health()
    assert isinstance(told, RunFailed)
    assert told.text == "Shard 2 (other pid 7) failed. bench cannot be reached from here."


def test_an_unexpected_error_is_told_too(run: Run, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, ZeroDivisionError())
    shardrun.serve(shard.pk, "other pid 7")
    told = crew(run)._health()
    assert isinstance(told, RunFailed)
    assert re.search(r"An unexpected error ended it \(ZeroDivisionError\)", told.text)


def test_a_shard_is_taken_once_and_not_for_a_run_that_is_over_or_anothers(
    run: Run, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, RunStopped())
    assert shardrun.serve(shard.pk, "one") is True
    assert shardrun.serve(shard.pk, "two") is False
    assert Shard.objects.get(pk=shard.pk).worker == "one"
    late = Shard.objects.create(run=run, number=3, run_lease="an earlier one")
    assert shardrun.serve(late.pk, "two") is False
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED)
    never = Shard.objects.create(run=run, number=4, run_lease="mine")
    assert shardrun.serve(never.pk, "two") is False
    assert shardrun.serve(10_000, "two") is False


def test_a_shard_that_is_silent_makes_the_run_lost_and_one_that_nobody_took_does_not(run: Run, shard: Shard) -> None:
    assert crew(run)._health() is None
    Shard.objects.filter(pk=shard.pk).update(lease="x", worker="other pid 7", heartbeat_at=timezone.now())
    assert crew(run)._health() is None
    Shard.objects.filter(pk=shard.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=16))
    told = crew(run)._health()
    assert isinstance(told, ShardLost)
    assert told.text.startswith("The worker of shard 2 (other pid 7) was not heard of for 15 s")


def test_a_shard_that_waits_for_orders_ends_with_its_run(run: Run, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shardrun, "Sender", lambda *_: None)
    orders = 0

    def sleep(watch: Watch, seconds: float) -> None:
        nonlocal orders
        orders += 1
        Run.objects.filter(pk=run.pk).update(state=RunState.FINISHED)
        real(watch, seconds)

    real = Watch.sleep
    monkeypatch.setattr(Watch, "sleep", sleep)
    assert shardrun.serve(shard.pk, "one") is True
    assert 1 <= orders <= 40
    shard.refresh_from_db()
    assert (shard.error, shard.clock_error_s) == ("", 0.001)


@pytest.mark.parametrize(
    ("sender", "reason"),
    [("one@host", "the worker was shut down"), ("two@host", "the worker of a shard was shut down"), ("three@host", "")],
)
def test_a_worker_that_is_asked_to_end_stops_the_runs_that_it_has_a_part_in(
    run: Run, shard: Shard, sender: str, reason: str
) -> None:
    Run.objects.filter(pk=run.pk).update(worker="one@host pid 1")
    Shard.objects.filter(pk=shard.pk).update(worker="two@host pid 2")
    tasks.stop_own_runs(sender=sender)
    run.refresh_from_db()
    assert (run.stop_requested, run.stop_reason) == (bool(reason), reason)
    assert run.state == (RunState.STOPPING if reason else RunState.RUNNING)


def test_without_a_broker_the_shards_are_not_waited_for(run: Run) -> None:
    with pytest.raises(RunFailed, match="broker cannot be reached"):
        crew(run).call(lambda text: None)
