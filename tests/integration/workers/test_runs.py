"""Whole runs: a worker process with its pool, a broker, an engine with the cost model."""

from __future__ import annotations

import os
import re
import signal
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from scheduler_api import policies
from scheduler_api.models import PolicyChange, Server, ServerKind
from tests.integration.workers.conftest import WorkerProcess, fresh, wait_for
from tests.support.engine import EngineProcess, running_engine
from workers import selectors, steps
from workers.app import app
from workers.errors import ExperimentRefused
from workers.experiments import RUN_TASK, request_stop, start_run
from workers.models import Run, RunState

PHYSICAL = {"prefill_order": "physical"}
ROTATING = {"prefill_order": "rotating"}


def start(server: Server, **fields: Any) -> Run:
    wish: dict[str, Any] = {
        "policy_a": PHYSICAL,
        "policy_b": ROTATING,
        "repetitions": 1,
        "scale": 0.02,
        "share": None,
        "by": None,
        "floor": 0,
    }
    return start_run(scenario="warm-behind-cold", server=server, **{**wish, **fields})


def busy(engine: EngineProcess) -> list[int]:
    return [slot["id"] for slot in engine.get("/scheduler")["slots"] if slot["state"] != "idle"]


def requested(engine: EngineProcess) -> dict[str, Any]:
    found: dict[str, Any] = engine.get("/scheduler")["policy"]["requested"]
    return found


@pytest.fixture(autouse=True)
def _found_policy(engine: EngineProcess) -> None:
    """Neither arm's, so that putting it back is seen."""
    engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots))
    engine.set_policy(prefill_order="shortest_first", rotation_start="after_last", phase="continuous")


def test_a_run_finishes_once_keeps_its_samples_and_puts_the_policy_back(
    worker: WorkerProcess, server: Server, engine: EngineProcess, operator: User
) -> None:
    run = start(server, by=operator)
    app.send_task(RUN_TASK, (run.pk,))  # a second delivery of the same task
    with pytest.raises(ExperimentRefused, match=f"under way \\(run {run.pk}\\)"):
        start(server)
    wait_for(lambda: not fresh(run).active, 30, lambda: (run.state, run.progress_text))

    assert (run.state, run.error, run.policy_restored) == (RunState.FINISHED, "", True)
    assert run.progress_done == run.progress_total == 3
    assert [(block.index, block.pair, block.arm) for block in run.blocks.all()] == [(0, 0, ""), (1, 1, "A"), (2, 1, "B")]
    assert [(sample.role, sample.ok) for sample in run.samples.filter(pair=1).order_by("block", "role")] == [
        ("cold", True),
        ("short", True),
    ] * 2
    assert requested(engine)["prefill_order"] == "shortest_first"
    assert engine.get("/scheduler")["policy"]["reverts_at"] is None
    changes = list(PolicyChange.objects.filter(server=server).order_by("pk"))
    assert [change.changes["prefill_order"] for change in changes] == ["physical", "rotating", "shortest_first"]
    assert [change.actor_name for change in changes] == [f"run {run.pk}"] * 3
    assert changes[0].reason == f"run {run.pk}, block 1 of 2"
    assert changes[0].ttl_s is not None

    found = selectors.results(run)
    (pair,) = found["pairs"]
    assert pair["A"]["short"]["wall_s"] > pair["B"]["short"]["wall_s"]  # it waited for the whole cold prompt
    assert set(found["timelines"]) == {"A", "B"}
    assert {row["policy"] for row in found["timelines"]["A"]["iterations"]} == {changes[0].version}
    assert found["measures"][0]["verdict"] == "too few pairs"
    assert len(list(selectors.sample_rows(run))) == 1 + run.samples.count()

    assert steps.conduct(run.pk, "another") is False
    assert run.blocks.count() == 3


def test_a_stop_frees_the_slots_and_the_policy_within_about_a_second(
    worker: WorkerProcess, server: Server, engine: EngineProcess, operator: User
) -> None:
    run = start(server, scale=0.06, repetitions=5)
    wait_for(lambda: run.blocks.filter(pair=1).exists() and busy(engine) == [0, 1], 30, lambda: fresh(run).progress_text)
    assert requested(engine)["prefill_order"] == "physical"
    request_stop(fresh(run), operator)
    assert run.state == RunState.STOPPING
    took = wait_for(lambda: not fresh(run).active, 10)
    assert (run.state, run.stop_reason, run.error) == (RunState.STOPPED, "stopped by mira", "")
    assert (busy(engine), run.policy_restored, run.warnings) == ([], True, [])
    assert requested(engine)["prefill_order"] == "shortest_first"
    assert took < 5, f"the stop took {took:.1f} s even on a busy machine"
    assert run.samples.filter(pair=0).count() == 3


def test_a_killed_worker_leaves_a_lost_run_with_the_policy_put_back(
    worker: WorkerProcess, server: Server, engine: EngineProcess
) -> None:
    run = start(server, scale=0.06, repetitions=5)
    wait_for(lambda: run.blocks.filter(pair=1).exists() and busy(engine) == [0, 1], 30, lambda: fresh(run).progress_text)
    child = re.fullmatch(r".* pid (\d+)", fresh(run).worker)
    assert child is not None
    os.kill(int(child.group(1)), signal.SIGKILL)
    wait_for(lambda: busy(engine) == [], 5)
    assert engine.get("/scheduler")["policy"]["reverts_at"] is not None
    assert fresh(run).state == RunState.RUNNING  # until the silence has lasted
    Run.objects.filter(pk=run.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=16))
    wait_for(lambda: fresh(run).state == RunState.LOST and run.policy_restored is not None, 15)
    assert run.policy_restored is True
    assert requested(engine)["prefill_order"] == "shortest_first"
    assert run.samples.filter(pair=0).count() == 3
    assert selectors.active_run(server) is None


def test_somebody_elses_switch_ends_the_run_and_stays(worker: WorkerProcess, server: Server, engine: EngineProcess) -> None:
    run = start(server, repetitions=5)
    wait_for(lambda: run.blocks.filter(pair=1).exists(), 30)
    engine.set_policy(prefill_order="fair")
    wait_for(lambda: not fresh(run).active, 15)
    assert run.state == RunState.FAILED
    assert "policy" in run.error
    assert "changed" in run.error
    assert run.policy_restored is False
    assert any("left as it is" in text for text in run.warnings)
    assert requested(engine)["prefill_order"] == "fair"


def test_a_worker_that_is_asked_to_end_stops_its_run_first(worker: WorkerProcess, server: Server, engine: EngineProcess) -> None:
    run = start(server, scale=0.06, repetitions=5)
    wait_for(lambda: run.blocks.filter(pair=1).exists(), 30)
    worker.stop()
    assert (fresh(run).state, run.stop_reason) == (RunState.STOPPED, "the worker was shut down")
    assert run.policy_restored is True
    assert requested(engine)["prefill_order"] == "shortest_first"


def test_an_engine_that_goes_away_fails_the_run_with_a_sentence(worker: WorkerProcess, transactional_db: None) -> None:
    arguments = ("--backend", "simulated", "--parallel", "2", "--no-kv-unified", "--ctx-size", "8192", "--batch-size", "64")
    with running_engine(*arguments) as other:
        server = Server.objects.create(name="frail", kind=ServerKind.ENGINE, base_url=other.url)
        run = start(server, scale=0.06)
        wait_for(lambda: busy(other) == [1], 30)
        other.process.kill()
        wait_for(lambda: not fresh(run).active, 15)
    assert run.state == RunState.FAILED
    assert run.error.startswith("The warm request of the calibration failed.")
    assert run.policy_restored is None


def test_an_arm_that_the_server_does_not_know_is_refused_with_its_name(server: Server) -> None:
    with pytest.raises(ExperimentRefused, match="Arm B: bench refuses this policy: prefill_order must be one of physical"):
        start(server, policy_b={"prefill_order": "alphabetical"})
    assert not Run.objects.exists()


def test_without_a_broker_nothing_is_started(server: Server, engine: EngineProcess) -> None:
    before = policies.read_policy(server)
    with pytest.raises(ExperimentRefused, match="broker cannot be reached"):
        start(server)
    assert not Run.objects.exists()
    assert policies.read_policy(server) == before
