"""Load runs that are spread, disturbed and killed: worker processes with their pool, a broker that restarts, engines that do."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.db import connections
from django.utils import timezone
from pytest_django.fixtures import Settings

from scheduler_api.models import Server, ServerKind
from tests.conftest import point_at
from tests.integration.workers.conftest import WorkerProcess, forget_broker, fresh, wait_for
from tests.support.engine import EngineProcess, running_engine
from tests.support.stub_servers import unused_port
from tests.support.valkey import ValkeyProcess, running_valkey
from workers import experiments, selectors, sharding, steps
from workers.app import app
from workers.experiments import RUN_TASK, request_stop, start_run
from workers.models import Block, Run, RunState, Shard

SLOTS = 3  # of the worker: a run of two shards leaves one for what beat asks
ARMS: dict[str, Any] = {"policy_a": {"prefill_order": "physical"}, "policy_b": {"prefill_order": "rotating"}}
EQUAL: dict[str, Any] = {"policy_a": {}, "policy_b": {}}

# Written for the cost model's speed, so that sizes and times are as they stand here.
TEXT = """
name: steady
version: 1
title: Steady
summary: Small requests at a steady rate.
written_for: 1000
scale: 1
streams:
  - name: one
    arrivals: {kind: poisson, rate: RATE, for_s: SECONDS}
    prompt: {tokens: PROMPT}
    output: 4
"""


def text(rate: float = 15.0, seconds: float = 1.0, prompt: int = 16) -> str:
    return TEXT.replace("RATE", str(rate)).replace("SECONDS", str(seconds)).replace("PROMPT", str(prompt))


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[ValkeyProcess]:
    """One that a test may end."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture(scope="module")
def own_worker(
    django_db_setup: None, own_valkey: ValkeyProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    database = str(connections["default"].settings_dict["NAME"])
    started = WorkerProcess(tmp_path_factory.mktemp("crew"), database, own_valkey.url, SLOTS)
    try:
        wait_for(lambda: " ready." in started.log.read_text(), 60, lambda: started.log.read_text())
        yield started
    finally:
        started.stop()


SMALL = ("--backend", "simulated", "--parallel", "3", "--no-kv-unified", "--ctx-size", "1536", "--batch-size", "64")


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    """A cost model of a millisecond a token; a slot of few tokens keeps the calibration short."""
    with running_engine(*SMALL) as process:
        yield process


@pytest.fixture(scope="module")
def wide_engine() -> Iterator[EngineProcess]:
    """A batch holds a whole prompt and runs to its end, whoever goes away: seconds of a server that holds on."""
    arguments = ("--backend", "simulated", "--parallel", "2", "--no-kv-unified", "--ctx-size", "3072", "--batch-size", "4096")
    with running_engine(*arguments) as process:
        yield process


@pytest.fixture
def crew(
    transactional_db: None, own_valkey: ValkeyProcess, own_worker: WorkerProcess, settings: Settings
) -> Iterator[WorkerProcess]:
    point_at(settings, own_valkey.url)
    forget_broker()
    try:
        yield own_worker
    finally:
        print(own_worker.log.read_text()[-4000:])


def register(engine: EngineProcess, name: str = "bench") -> Server:
    return Server.objects.create(name=name, kind=ServerKind.ENGINE, base_url=engine.url)


def begin(server: Server, yaml: str = "", **fields: Any) -> Run:
    wish: dict[str, Any] = {**EQUAL, "repetitions": 1, "scale": None, "share": None, "by": None, "seed": 7, **fields}
    return start_run(scenario="steady", text=yaml or text(), server=server, **wish)


def over(run: Run, limit_s: float = 30) -> Run:
    wait_for(lambda: not fresh(run).active, limit_s, lambda: (run.state, run.progress_text, selectors.log(run)[-3:]))
    return run


def sending(run: Run) -> Block:
    """Once requests of a compared block have ended, and more are to come."""
    wait_for(lambda: run.samples.filter(pair=1).exists(), 30, lambda: (fresh(run).state, run.error, run.progress_text))
    return run.blocks.get(pair=1, finished_at=None)


def kill(worker: str) -> None:
    """The pool's process that has the run or shard; the worker starts another one in its place."""
    found = re.fullmatch(r".* pid (\d+)", worker)
    assert found is not None
    os.kill(int(found.group(1)), signal.SIGKILL)


def grow_silent(rows: Any) -> None:
    """As if the silence had lasted already."""
    rows.update(heartbeat_at=timezone.now() - timedelta(seconds=16))


def idle(engine: EngineProcess) -> None:
    engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots), 5)


def load_of(run: Run, pair: int, arm: str) -> list[tuple[Any, ...]]:
    """What was sent when: place, size, and the planned moment from the first one on, to 20 ms, before the run's own stretch."""
    stretch = run.conditions["fitted"]["times"]
    rows = list(run.samples.filter(pair=pair, arm=arm).exclude(role="warm").order_by("place"))
    first = min(row.scheduled_at or 0.0 for row in rows)
    moments = [((row.scheduled_at or 0.0) - first) / stretch for row in rows]
    return [
        (row.place, row.n_prompt, row.n_generated, pytest.approx(at, abs=0.02)) for row, at in zip(rows, moments, strict=True)
    ]


def test_two_shards_send_the_same_load_as_one_and_a_second_delivery_sends_nothing(
    crew: WorkerProcess, engine: EngineProcess
) -> None:
    server = register(engine)
    engine.set_policy(prefill_order="shortest_first")
    alone = begin(server, **ARMS)
    app.send_task(RUN_TASK, (alone.pk,))
    seen: list[dict[str, Any]] = []

    def watched() -> bool:
        if (now := selectors.progress(fresh(alone))) is not None and now not in seen:
            seen.append(now)
        return not alone.active

    wait_for(watched, 30, lambda: (alone.state, alone.progress_text))
    assert (alone.state, alone.error, alone.policy_restored) == (RunState.FINISHED, "", True)
    assert steps.conduct(alone.pk, "another") is False
    planned = alone.conditions["planned"]["requests"]
    assert alone.blocks.count() == 3
    assert alone.samples.filter(pair=1).count() == 2 * planned
    assert len(seen) >= 3
    assert set(seen[-1]) == set(selectors.PROGRESS_KEYS)
    assert (seen[-1]["planned"], seen[-1]["done"], seen[-1]["failed"]) == (planned, planned, 0)
    assert any(0 < each["done"] < planned and each["sent"] >= each["done"] for each in seen)
    assert 0 < seen[-1]["ttft_p50_s"] <= seen[-1]["ttft_p95_s"]

    spread = begin(server, shards=2, **ARMS)
    wait_for(lambda: Shard.objects.filter(run=spread).exists(), 10)
    app.send_task(sharding.SHARD_TASK, (Shard.objects.get(run=spread).pk,))  # the shard is delivered twice too
    over(spread)
    assert (spread.state, spread.error) == (RunState.FINISHED, "")
    assert [text for text in spread.warnings if "generator was behind" not in text] == []  # as it may be on a loaded machine
    assert sorted(spread.conditions["planned"]["by_shard"]) == [planned // 2, planned - planned // 2]
    told = spread.conditions["shards"]
    assert [each["shard"] for each in told] == [1, 2]
    assert told[0]["worker"] != told[1]["worker"]
    assert all(each["clock_error_s"] < 0.02 for each in told)
    for arm in "AB":
        assert load_of(spread, 1, arm) == load_of(alone, 1, arm)
    assert selectors.results(spread)["complete_pairs"] == 1
    assert spread.live is not None
    assert (spread.live["planned"], spread.live["done"]) == (planned, planned)
    assert {line["source"] for line in selectors.log(spread)} >= {"console", "worker", "shard 2"}
    assert engine.get("/scheduler")["policy"]["requested"]["prefill_order"] == "shortest_first"


def test_a_killed_worker_leaves_a_partial_run_that_can_be_read(crew: WorkerProcess, engine: EngineProcess) -> None:
    server = register(engine)
    engine.set_policy(prefill_order="shortest_first")
    run = begin(server, text(seconds=30.0), shards=2, **ARMS)
    block = sending(run)
    kill(fresh(run).worker)
    grow_silent(Run.objects.filter(pk=run.pk))
    app.send_task("workers.reap")  # as beat does every five seconds
    wait_for(lambda: fresh(run).state == RunState.LOST and run.policy_restored is not None, 12)
    assert run.policy_restored is True
    assert engine.get("/scheduler")["policy"]["requested"]["prefill_order"] == "shortest_first"
    idle(engine)  # the other shard saw it and closed its connections
    assert block.samples.filter(outcome="ok").exists()
    found = selectors.results(run)
    assert (found["complete_pairs"], selectors.log(run)[-1]["source"]) == (0, "reaper")
    assert len(list(selectors.sample_rows(run))) == 1 + run.samples.count()
    assert selectors.active_run(server) is None


def test_a_shard_whose_worker_dies_makes_the_run_lost(crew: WorkerProcess, engine: EngineProcess) -> None:
    run = begin(register(engine), text(seconds=30.0), shards=2, **ARMS)
    block = sending(run)
    shard = Shard.objects.get(run=run)
    kill(shard.worker)
    grow_silent(Shard.objects.filter(pk=shard.pk))
    over(run, 10)
    assert run.state == RunState.LOST
    assert run.error.startswith(f"The worker of shard 2 ({shard.worker}) was not heard of for 15 s")
    assert run.policy_restored is True
    assert block.samples.filter(outcome="ok").exists()
    assert block.samples.filter(outcome="stopped", error="The run ended first.").count() <= 40
    idle(engine)


class Waiting(threading.Thread):
    """How many messages lie in the broker, last seen while the block goes on."""

    def __init__(self, valkey: ValkeyProcess) -> None:
        super().__init__(daemon=True)
        self.lengths: list[int] = []
        self._over = threading.Event()
        self._url = valkey.url

    def __enter__(self) -> Waiting:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        with redis.Redis.from_url(self._url) as client:
            while not self._over.wait(0.05):
                if length := client.llen("celery"):
                    self.lengths.append(int(length))


def test_fewer_free_slots_than_shards_are_said(
    crew: WorkerProcess, engine: EngineProcess, own_valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is shard 1; the worker has slots for three of the other five."""
    monkeypatch.setattr(sharding, "JOIN_WITHIN_S", 2.0)
    monkeypatch.setattr(experiments, "send", lambda run: None)
    run = begin(register(engine), shards=6)
    with Waiting(own_valkey) as waiting:
        assert steps.conduct(run.pk, "test pid 1") is True
    assert waiting.lengths[-1] >= 2  # left for another worker: none is kept by one without a free slot
    assert fresh(run).state == RunState.FAILED
    assert re.match(r"The run asks for 6 shards, and within 2 s there was a free worker slot for [1-4] of them: start", run.error)


def test_a_stop_comes_within_a_second_and_names_the_slots_that_hold_on(crew: WorkerProcess, wide_engine: EngineProcess) -> None:
    run = begin(register(wide_engine), text(rate=2.0, seconds=3.0, prompt=1500))
    wait_for(lambda: run.blocks.filter(pair=1).exists(), 30, lambda: fresh(run).progress_text)
    wide_engine.wait_until(lambda slots: all(slot["is_processing"] for slot in slots))
    begun = time.monotonic()
    request_stop(fresh(run), None)
    over(run, 10)
    took = time.monotonic() - begun
    assert run.state == RunState.STOPPED
    assert took < 4, f"the stop took {took:.1f} s even on a busy machine"
    assert any("slots still busy at the end (0, 1)" in text for text in run.warnings)
    idle(wide_engine)


def test_a_broker_that_restarts_costs_a_run_nothing(
    crew: WorkerProcess, engine: EngineProcess, own_valkey: ValkeyProcess
) -> None:
    run = begin(register(engine), text(seconds=1.2), shards=2)
    sending(run)
    own_valkey.stop()
    own_valkey.start()
    over(run)
    assert (run.state, run.error) == (RunState.FINISHED, "")
    assert run.samples.filter(pair=1).count() == 2 * run.conditions["planned"]["requests"]
    forget_broker()
    again = begin(run.server, text(seconds=0.2))  # the worker finds the broker again, and takes nothing twice
    assert over(again).state == RunState.FINISHED
    assert run.blocks.count() == 3


def test_an_engine_that_restarts_costs_a_block_and_is_told(crew: WorkerProcess) -> None:
    arguments = (*SMALL, "--port", str(unused_port()))
    with ExitStack() as both:
        first = both.enter_context(running_engine(*arguments))
        first.set_policy(prefill_order="shortest_first")
        run = begin(register(first, "frail"), text(seconds=1.5), **ARMS)
        block = sending(run)
        first.process.kill()
        first.process.wait()
        second = both.enter_context(running_engine(*arguments))
        over(run)
        assert (run.state, run.error, run.policy_restored) == (RunState.FINISHED, "", True)
        block.refresh_from_db()
        assert block.interrupted
        failed = block.samples.filter(ok=False).count()
        assert failed > 0
        assert run.conditions["restarts"][0]["failed"] == failed
        assert any(f"the server restarted within this block ({failed} of " in text for text in run.warnings)
        assert selectors.results(run)["complete_pairs"] == 0  # its other half alone is no pair
        other = run.blocks.exclude(pk=block.pk).get(pair=1)
        assert set(other.samples.values_list("outcome", flat=True)) == {"ok"}
        assert second.get("/scheduler")["policy"]["requested"]["prefill_order"] == "shortest_first"
