"""Switching: versions, limits of each field, deadlines and the way back, and what differs between asked and in force."""

from __future__ import annotations

import json

import pytest

from engine.scheduler.control import PolicyConflict
from engine.scheduler.policy import FIELDS, Policy, PolicyInvalid
from tests.unit.scheduler.harness import Bench, make_scheduler

ROTATING = {"prefill_order": "rotating"}


def test_the_defaults_are_those_of_llama_server() -> None:
    state = make_scheduler().policy(0.0)
    assert state.requested.as_dict() == {
        "prefill_order": "physical",
        "rotation_start": "after_first",
        "phase": "continuous",
        "prefill_chunk": None,
        "decode_share": None,
        "barrier_join": "first_completion",
        "barrier_join_window_ms": 1000,
        "barrier_max_hold_ms": None,
        "barrier_max_generation_tokens": None,
        "speculative": "off",
        "speculative_n_max": 16,
        "speculative_n_min": 0,
        "speculative_ngram_size": 4,
    }
    assert state.version == 1


def test_a_change_raises_the_version_and_names_its_first_iteration() -> None:
    made = Bench.make()
    made.submit(0, 20)
    made.step()
    state = made.scheduler.set_policy(ROTATING, expected_version=1, now=1.0, reason="chat waits")
    assert (state.version, state.effective.prefill_order, state.effective_from_iteration) == (2, "rotating", 2)
    assert (state.changed_at, state.reason, state.reverts_at) == (1.0, "chat waits", None)
    made.step()
    assert made.plans[-1].policy_version == 2


def test_a_version_that_is_not_the_current_one_conflicts() -> None:
    scheduler = make_scheduler()
    scheduler.set_policy(ROTATING, expected_version=1, now=1.0)
    with pytest.raises(PolicyConflict) as caught:
        scheduler.set_policy({"phase": "barrier"}, expected_version=1, now=2.0)
    assert caught.value.current == scheduler.policy(2.0)
    assert scheduler.policy(2.0).requested.phase == "continuous"


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("prefill_order", "random", ("physical", "rotating", "fair", "shortest_first")),
        ("prefill_order", 3, ("physical", "rotating", "fair", "shortest_first")),
        ("rotation_start", None, ("after_last", "after_first")),
        ("phase", "Barrier", ("continuous", "barrier")),
        ("prefill_chunk", 0, ("1 to 8", None)),
        ("prefill_chunk", 9, ("1 to 8", None)),
        ("prefill_chunk", True, ("1 to 8", None)),
        ("prefill_chunk", 2.0, ("1 to 8", None)),
        ("decode_share", 0, ("0.01 to 0.99", None)),
        ("decode_share", 1, ("0.01 to 0.99", None)),
        ("decode_share", "0.5", ("0.01 to 0.99", None)),
        ("decode_share", float("nan"), ("0.01 to 0.99", None)),
        ("barrier_join", "never", ("first_completion", "window")),
        ("barrier_join_window_ms", None, ("1 to 3600000",)),
        ("barrier_max_generation_tokens", 0, ("1 to 2147483648", None)),
        ("colour", "red", tuple(FIELDS)),
    ],
)
def test_a_value_out_of_bounds_names_the_field_and_what_it_allows(field: str, value: object, allowed: tuple[object, ...]) -> None:
    scheduler = make_scheduler()
    with pytest.raises(PolicyInvalid) as caught:
        scheduler.set_policy({field: value}, expected_version=1, now=0.0)
    assert caught.value.field == field
    assert caught.value.allowed == allowed
    assert scheduler.policy(0.0).version == 1


@pytest.mark.parametrize("ttl_s", [0, -1.0, float("nan"), float("inf"), 1e9, True])
def test_a_deadline_must_be_a_sensible_number(ttl_s: float) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        make_scheduler().set_policy(ROTATING, expected_version=1, now=0.0, ttl_s=ttl_s)
    assert caught.value.field == "ttl_s"


def test_a_dry_run_answers_as_if_and_changes_nothing() -> None:
    scheduler = make_scheduler()
    state = scheduler.set_policy(ROTATING, expected_version=1, now=5.0, ttl_s=60.0, dry_run=True)
    assert (state.version, state.effective.prefill_order, state.reverts_at) == (2, "rotating", 65.0)
    assert scheduler.policy(5.0).version == 1
    with pytest.raises(PolicyConflict):
        scheduler.set_policy(ROTATING, expected_version=2, now=5.0, dry_run=True)


class TestDeadlines:
    def test_goes_back_by_itself(self) -> None:
        made = Bench.make()
        made.submit(0, 40)
        made.scheduler.set_policy(ROTATING, expected_version=1, now=0.0, ttl_s=2.5, reason="trial")
        made.step()
        made.step()
        assert made.plans[-1].policy_version == 2
        made.step()
        assert made.plans[-1].policy_version == 3
        state = made.scheduler.policy(made.now)
        assert (state.requested, state.reverts_at, state.reverts_to) == (Policy(), None, None)
        assert (state.changed_at, state.effective_from_iteration) == (3.0, 3)

    def test_an_idle_server_goes_back_when_looked_at(self) -> None:
        scheduler = make_scheduler()
        scheduler.set_policy(ROTATING, expected_version=1, now=0.0, ttl_s=10.0)
        policy = scheduler.view(10.0)["policy"]
        assert isinstance(policy, dict)
        assert policy["requested"]["prefill_order"] == "physical"

    def test_several_changes_with_a_deadline_go_back_to_what_stood_before_the_first(self) -> None:
        scheduler = make_scheduler()
        scheduler.set_policy({"prefill_order": "fair"}, expected_version=1, now=0.0)
        scheduler.set_policy(ROTATING, expected_version=2, now=0.0, ttl_s=10.0)
        state = scheduler.set_policy({"phase": "barrier"}, expected_version=3, now=5.0, ttl_s=10.0)
        assert (state.reverts_at, state.reverts_to) == (15.0, Policy(prefill_order=state.reverts_to.prefill_order))  # type: ignore[union-attr]
        assert scheduler.policy(14.9).requested.phase == "barrier"
        back = scheduler.policy(15.0)
        assert (back.requested.prefill_order, back.requested.phase, back.version) == ("fair", "continuous", 5)

    def test_a_change_without_one_makes_the_policy_stay(self) -> None:
        scheduler = make_scheduler()
        scheduler.set_policy(ROTATING, expected_version=1, now=0.0, ttl_s=10.0)
        scheduler.set_policy({}, expected_version=2, now=5.0, reason="keep it")
        assert scheduler.policy(1000.0).requested.prefill_order == "rotating"

    def test_a_deadline_that_passed_is_noticed_before_the_next_change(self) -> None:
        scheduler = make_scheduler()
        scheduler.set_policy(ROTATING, expected_version=1, now=0.0, ttl_s=10.0)
        with pytest.raises(PolicyConflict) as caught:
            scheduler.set_policy({"prefill_chunk": 4}, expected_version=2, now=11.0)
        assert caught.value.current.version == 3

    def test_the_phase_goes_back_too(self) -> None:
        made = Bench.make()
        made.submit(0, 2, n_predict=2)
        made.submit(1, 40, n_predict=2)
        made.scheduler.set_policy({"phase": "barrier"}, expected_version=1, now=0.0, ttl_s=1.5)
        made.step()
        assert made.slot(0)["state"] == "held"
        assert made.step().emissions[0].first
        assert made.phase()["name"] == "continuous"


class TestResolved:
    @pytest.mark.parametrize("order", ["rotating", "fair", "shortest_first"])
    def test_unified_kv_keeps_physical_order_and_says_why(self, order: str) -> None:
        scheduler = make_scheduler(kv_mode="unified", kv_from="auto")
        state = scheduler.set_policy({"prefill_order": order}, expected_version=1, now=0.0)
        assert (state.requested.prefill_order, state.effective.prefill_order) == (order, "physical")
        assert "unified" in state.reasons["prefill_order"]
        assert scheduler.view(0.0)["kv"] == {"mode": "unified", "resolved_from": "auto", "used": 0, "size": 16384}

    def test_a_barrier_leaves_no_share_and_says_why(self) -> None:
        scheduler = make_scheduler(policy={"decode_share": 0.5})
        assert scheduler.policy(0.0).effective.decode_share == 0.5
        state = scheduler.set_policy({"phase": "barrier"}, expected_version=1, now=0.0)
        assert (state.requested.decode_share, state.effective.decode_share) == (0.5, None)
        assert "barrier" in state.reasons["decode_share"]

    def test_split_kv_follows_and_gives_no_reason(self) -> None:
        state = make_scheduler().set_policy(ROTATING, expected_version=1, now=0.0)
        assert (state.effective, state.reasons) == (state.requested, {})


def test_the_policy_object_is_strict_json_with_the_documented_keys() -> None:
    scheduler = make_scheduler()
    state = scheduler.set_policy(ROTATING, expected_version=1, now=0.0, ttl_s=9.0)
    plain = json.loads(json.dumps(state.as_dict(), allow_nan=False))
    assert list(plain) == [
        "version",
        "requested",
        "effective",
        "reasons",
        "effective_from_iteration",
        "changed_at",
        "reverts_at",
        "reverts_to",
        "reason",
    ]
    assert plain["reverts_to"]["prefill_order"] == "physical"
