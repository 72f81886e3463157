"""Who holds a run, and what is put back, with the database alone; the server's policy is a fake of our own seam."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from scheduler_api.exceptions import ServerUnreachable, SwitchRefused
from scheduler_api.models import Server, ServerKind
from tests.integration.workers.conftest import fresh, wait_for
from workers import experiments, lease, reaping, restore
from workers.errors import ExperimentRefused, LeaseLost, RunStopped, ShardLost
from workers.lease import Watch
from workers.models import Run, RunState

FOUND = {"prefill_order": "physical", "rotation_start": "after_first", "phase": "continuous"}


class FakePolicies:
    """Holds one policy object as the engine would; `fails` is raised instead of answering."""

    def __init__(self, **policy: Any) -> None:
        self.policy: dict[str, Any] = {"version": 1, "requested": dict(FOUND), "reason": "", "reverts_at": None, **policy}
        self.fails: Exception | None = None
        self.switches: list[dict[str, Any]] = []

    def read_policy(self, server: Server) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        return self.policy

    def switch(self, server: Server, changes: dict[str, Any], **wish: Any) -> None:
        if wish["expected_version"] != self.policy["version"]:
            raise SwitchRefused("The policy was changed by someone else meanwhile; nothing was switched.", 409, self.policy)
        self.switches.append({"changes": changes, **wish})
        self.policy = {**self.policy, "version": self.policy["version"] + 1, "requested": {**self.policy["requested"], **changes}}


@pytest.fixture
def server(db: None) -> Server:
    return Server.objects.create(name="bench", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:1")


def make_run(server: Server, **fields: Any) -> Run:
    arms = {"policy_a": {"prefill_order": "physical"}, "policy_b": {"prefill_order": "rotating"}}
    return Run.objects.create(scenario="warm-behind-cold", server=server, repetitions=4, seed=1, **{**arms, **fields})


def make_held(server: Server, silent_s: float = 0.0, **fields: Any) -> Run:
    heard = timezone.now() - timedelta(seconds=silent_s)
    return make_run(
        server,
        state=RunState.RUNNING,
        lease="mine",
        heartbeat_at=heard,
        policy_before={"version": 1, "requested": FOUND},
        **fields,
    )


def play(monkeypatch: pytest.MonkeyPatch, **policy: Any) -> FakePolicies:
    fake = FakePolicies(**policy)
    monkeypatch.setattr(restore, "policies", fake)
    return fake


# -- holding a run ----------------------------------------------------------------------------------------------------


def test_a_queued_run_is_claimed_by_exactly_one(server: Server) -> None:
    run = make_run(server)
    first, second = lease.claim(run.pk, "one"), lease.claim(run.pk, "two")
    assert first is not None
    assert second is None
    assert (fresh(run).state, run.worker, run.lease) == (RunState.RUNNING, "one", first)


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.QUEUED])
def test_no_other_run_can_be_claimed(server: Server, state: RunState) -> None:
    assert lease.claim(make_run(server, state=state).pk, "one") is None


def test_writes_under_another_lease_are_refused(server: Server) -> None:
    run = make_held(server)
    with pytest.raises(LeaseLost):
        lease.write(run.pk, "theirs", progress_text="x")
    lease.write(run.pk, "mine", progress_text="x")
    assert fresh(run).progress_text == "x"


def test_the_database_itself_allows_one_active_run_a_server(server: Server) -> None:
    make_run(server, state=RunState.STOPPING)
    with pytest.raises(IntegrityError), transaction.atomic():
        make_run(server)
    Run.objects.update(state=RunState.STOPPED)
    make_run(server)


@pytest.mark.django_db(transaction=True)
def test_the_watch_notices_a_stop_and_calls_once(server: Server) -> None:
    run = make_held(server)
    calls: list[float] = []
    with Watch(run.pk, "mine") as watch, watch.calling(lambda: calls.append(time.monotonic())):
        watch.check()
        experiments.request_stop(run, None)
        wait_for(lambda: bool(calls), 5)
        with pytest.raises(RunStopped):
            watch.check()
        late: list[int] = []
        with watch.calling(lambda: late.append(1)):
            assert late == [1]
    assert len(calls) == 1


@pytest.mark.django_db(transaction=True)
def test_the_watch_beats_and_notices_that_the_run_was_taken_away(server: Server) -> None:
    run = make_held(server, silent_s=10)
    with Watch(run.pk, "mine") as watch:
        wait_for(lambda: fresh(run).heartbeat_at > timezone.now() - timedelta(seconds=5), 10)  # type: ignore[operator]
        Run.objects.filter(pk=run.pk).update(state=RunState.LOST)
        wait_for(lambda: watch._reason is not None, 5)
        with pytest.raises(LeaseLost):
            watch.check()


@pytest.mark.django_db(transaction=True)
def test_progress_is_written_down_at_most_twice_a_second_and_never_after_the_load(server: Server) -> None:
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 1:
            raise DatabaseError("locked")  # the next one comes all the same

    with Watch(make_held(server).pk, "mine") as watch:
        with watch.ticking(tick):
            wait_for(lambda: len(ticks) >= 3, 10)
        count = len(ticks)
        time.sleep(0.7)
    assert len(ticks) == count
    assert min(after - before for before, after in pairwise(ticks)) > 0.5


@pytest.mark.django_db(transaction=True)
def test_a_further_reason_ends_the_work_like_a_stop(server: Server) -> None:
    with Watch(make_held(server).pk, "mine") as watch:
        watch.also.append(lambda: ShardLost("Shard 2 is gone."))
        with pytest.raises(ShardLost, match=r"Shard 2 is gone\."):
            watch.sleep(5)


def test_a_queued_run_stops_at_once_and_one_that_is_over_stays(server: Server) -> None:
    queued = make_run(server)
    experiments.request_stop(queued, None)
    assert (queued.state, queued.finished_at is not None) == (RunState.STOPPED, True)
    finished = make_run(server, state=RunState.FINISHED)
    experiments.request_stop(finished, None)
    assert (finished.state, finished.stop_requested) == (RunState.FINISHED, False)


# -- putting the policy back ------------------------------------------------------------------------------------------


def test_our_own_switch_is_undone_for_good(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, version=7, requested={**FOUND, "prefill_order": "rotating"})
    run = make_held(server, policy_version=7)
    assert restore.restore(run) == restore.Restored(True)
    (switch,) = fake.switches
    assert (switch["changes"], switch["ttl_s"], switch["actor_name"]) == ({"prefill_order": "physical"}, None, f"run {run.pk}")


def test_a_switch_that_was_sent_but_never_recorded_is_known_by_its_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_held(server, policy_version=0)
    fake = play(monkeypatch, version=2, requested={**FOUND, "prefill_order": "rotating"}, reason=f"run {run.pk}, block 1 of 8")
    assert restore.restore(run).done is True
    assert len(fake.switches) == 1


def test_anothers_switch_is_left_alone_and_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, version=8, requested={**FOUND, "prefill_order": "fair"}, reason="chat waits")
    found = restore.restore(make_held(server, policy_version=7))
    assert (found.done, fake.switches) == (False, [])
    assert found.text == "Somebody else changed the policy during the run (version 8), so it was left as it is."


def test_a_policy_that_the_server_put_back_itself_needs_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, version=8, reason="went back at its deadline")
    assert restore.restore(make_held(server, policy_version=7)) == restore.Restored(True)
    assert fake.switches == []


def test_a_run_that_changed_nothing_puts_nothing_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, version=8, requested={**FOUND, "prefill_order": "fair"})
    assert restore.restore(make_held(server)) == restore.Restored(None)
    assert fake.switches == []


def test_a_deadline_that_the_policy_found_had_goes_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, version=7)
    run = make_held(server, policy_version=7)
    base = {"version": 1, "requested": {**FOUND, "prefill_order": "fair"}, "reverts_to": FOUND}
    run.policy_before = {**base, "reverts_at": time.time() + 100}
    restore.restore(run)
    assert fake.switches[-1]["changes"] == {"prefill_order": "fair"}
    assert 90 < fake.switches[-1]["ttl_s"] <= 100
    run.policy_before = {**base, "reverts_at": time.time() - 1}
    run.policy_version = 8
    restore.restore(run)
    assert fake.switches[-1]["changes"] == {"prefill_order": "physical"}
    assert fake.switches[-1]["ttl_s"] is None


def test_a_server_that_does_not_answer_is_said_and_nothing_raised(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch)
    fake.fails = ServerUnreachable("bench cannot be used: connection refused.")
    found = restore.restore(make_held(server, policy_version=7))
    assert found.done is False
    assert "connection refused" in found.text
    assert "deadline" in found.text


def test_each_arm_sets_every_field_that_either_sets(server: Server) -> None:
    run = make_held(server)
    run.policy_a, run.policy_b = {"prefill_order": "fair"}, {"phase": "barrier"}
    assert restore.arm_policy(run, run.policy_a) == {"prefill_order": "fair", "phase": "continuous"}
    assert restore.arm_policy(run, run.policy_b) == {"prefill_order": "physical", "phase": "barrier"}


# -- reaping ----------------------------------------------------------------------------------------------------------


def test_reaping_buries_the_silent_once_and_spares_the_living(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, version=7, requested={**FOUND, "prefill_order": "rotating"})
    silent = make_held(server, silent_s=16, policy_version=7)
    other = Server.objects.create(name="other", kind=ServerKind.ENGINE, base_url="http://127.0.0.1:2")
    alive = make_held(other, silent_s=10, policy_version=7)
    assert reaping.reap() == [silent.pk]
    assert reaping.reap() == []
    assert (fresh(silent).state, silent.policy_restored) == (RunState.LOST, True)
    assert "15 s" in silent.error
    assert fresh(alive).state == RunState.RUNNING
    assert len(fake.switches) == 1


def test_a_worker_heard_again_in_the_last_moment_keeps_its_run(server: Server) -> None:
    run = make_held(server, silent_s=16)
    (expired,) = lease.expired()
    Run.objects.filter(pk=run.pk).update(heartbeat_at=timezone.now())
    assert lease.take_from_the_dead(expired, "gone") is False
    assert fresh(run).state == RunState.RUNNING


def test_a_queued_run_that_the_broker_forgot_is_sent_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(reaping, "send", lambda run: sent.append(run.pk))
    run = make_run(server, enqueued_at=timezone.now() - timedelta(seconds=61))
    reaping.reap()
    reaping.reap()
    assert sent == [run.pk]


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"scenario": "none"}, "There is no scenario 'none'"),
        ({"scale": 100.0}, "outside 0.005 to 20"),
        ({"repetitions": 0}, "between 1 and 100, not 0"),
        ({"share": 1.0}, "below 1, not 1"),
        ({}, "cannot be used: connection refused"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(server: Server, wish: dict[str, Any], sentence: str) -> None:
    arms: dict[str, Any] = {"policy_a": {}, "policy_b": {}, "repetitions": 4, "scale": 1.0, "share": 0.1, "by": None}
    with pytest.raises(ExperimentRefused) as refused:
        experiments.start_run(**{"scenario": "warm-behind-cold", "server": server, **arms, **wish})
    assert sentence in refused.value.text
    assert not Run.objects.exists()


def test_a_stock_llama_server_is_refused_for_its_fixed_scheduling(db: None) -> None:
    server = Server.objects.create(name="stock", kind=ServerKind.LLAMA_SERVER, base_url="http://127.0.0.1:1")
    with pytest.raises(ExperimentRefused, match="stock cannot switch policies"):
        experiments.start_run(
            scenario="warm-behind-cold", server=server, policy_a={}, policy_b={}, repetitions=4, scale=1.0, share=0.1, by=None
        )


def test_the_plan_names_what_will_be_sent_and_what_is_in_the_way(db: None) -> None:
    state = {
        "server": {"id": 1},
        "info": {"n_ctx_slot": 32_768, "n_slots": 4, "n_batch": 2048, "kv_mode": "unified"},
        "switching": {"can": True, "why_not": ""},
    }
    plan = experiments.plan_of(state, 1.0, 3)
    assert plan["ok"] is False
    assert "needs 41,502" in plan["problems"][0]
    assert "unified" in plan["warnings"][0]
    small = experiments.plan_of(state, 0.5, 3)
    assert small["ok"] is True
    assert (small["order"], small["blocks"], small["requests"]) == ("AB BA AB", 7, 21)
    assert small["tokens"] == {"cold": 9_000, "depth": 20_000, "short": 750, "n_predict": 1}
    assert small["expected"]["cold_s"] == pytest.approx(3.0)
    assert small["expected"]["basis"] == "assuming 3000 prompt tokens a second"
    assert experiments.plan_of(None, 0.0, 3)["ok"] is False


def test_expected_times_come_from_the_last_run_on_the_server(server: Server) -> None:
    alone = {"cold_alone_s": 4.0, "short_alone_s": 0.5, "warm_s": 12.0}
    run = make_run(server, state=RunState.FINISHED, scale=1.0, conditions=alone)
    expected = experiments.plan_of({"server": {"id": server.pk}, "info": {}}, 0.5, 8)["expected"]
    assert (expected["cold_s"], expected["short_s"], expected["warm_s"]) == (2.0, 0.25, 6.0)
    assert expected["total_s"] == pytest.approx(6.0 + 2.25 + (4 + 16) * 2.25)
    assert expected["basis"] == f"from run {run.pk}, scaled by its number of tokens"
