from __future__ import annotations

from typing import Any

import pytest

from workers.analysis import iterations
from workers.checks import check_server
from workers.errors import RunFailed
from workers.scenarios import load

SCENARIO = load("warm-behind-cold")


def make_state(**server: Any) -> dict[str, Any]:
    return {
        "server": {"name": "e", "n_slots": 4, "n_ctx_slot": 49_152, "n_batch": 2048, **server},
        "policy": {"version": 3, "requested": {"prefill_order": "physical"}},
        "kv": {"mode": "split", "resolved_from": "flag"},
        "slots": [{"id": slot, "state": "idle"} for slot in range(4)],
    }


def test_a_fitting_server_has_no_warnings() -> None:
    setup = check_server(make_state(), SCENARIO, SCENARIO.sizes(1.0))
    assert setup.warnings == ()
    assert setup.policy["version"] == 3
    assert setup.n_batch == 2048
    assert setup.conditions["tokens"] == {"cold": 18_000, "depth": 40_000, "short": 1_500, "n_predict": 1}
    assert setup.conditions["kv_mode"] == "split"


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (make_state(n_ctx_slot=32_768), "A slot holds 32,768 tokens, and the scenario needs 41,502"),
        (make_state(n_slots=1), "has 1 slots, and the scenario needs slot 1"),
        ({"server": {}}, "did not describe itself"),
    ],
)
def test_a_server_that_cannot_run_it_is_refused_with_the_numbers(state: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RunFailed) as refused:
        check_server(state, SCENARIO, SCENARIO.sizes(1.0))
    assert sentence in refused.value.text


def test_context_that_fits_to_the_token_is_enough() -> None:
    assert check_server(make_state(n_ctx_slot=41_502), SCENARIO, SCENARIO.sizes(1.0)).warnings == ()


def test_unified_kv_few_batches_and_other_work_are_warned_of() -> None:
    state = make_state()
    state["kv"]["mode"] = "unified"
    state["slots"][1]["state"] = "generating"
    unified, batches, busy = check_server(state, SCENARIO, SCENARIO.sizes(0.1)).warnings
    assert "unified" in unified
    assert "no effect" in unified
    assert "fills only 1 batch of 2,048" in batches
    assert busy == "At the start slot 1 had other work, so times include it; the run's own requests wait until 1 is free."


def make_row(i: int, t: float, run_ms: float, prompt: list[list[int]], policy: int = 4, **more: Any) -> dict[str, Any]:
    return {"i": i, "t": t, "run_ms": run_ms, "prompt": prompt, "gen": [], "skipped": [], "policy": policy, "cursor": 0, **more}


ROWS = [
    make_row(1, 100.0, 400.0, [[0, 2048]], gen=[[3, 1]], skipped=[[1, "batch full"]]),
    make_row(2, 100.4, 600.0, [[1, 1500], [0, 548]]),
    make_row(3, 101.0, 10.0, [[2, 30]], policy=5),
]


def test_foreign_tokens_are_those_of_other_slots_and_those_beyond_the_own() -> None:
    assert iterations.foreign_tokens(ROWS, {0: 2596, 1: 1500}) == {2: 30, 3: 1}
    assert iterations.foreign_tokens(ROWS, {0: 2096, 1: 1500}) == {0: 500, 2: 30, 3: 1}
    assert iterations.foreign_tokens(ROWS[1:2], {0: 548, 1: 1500}) == {}


def test_iterations_under_another_policy_are_found() -> None:
    assert iterations.foreign_policies(ROWS, 4) == [5]
    assert iterations.foreign_policies(ROWS[:2], 4) == []


def test_batch_time_is_the_median_of_full_batches() -> None:
    assert iterations.full_batch_s(ROWS, 2048) == pytest.approx(0.5)
    assert iterations.full_batch_s(ROWS, 4096) is None


def test_timelines_keep_what_is_drawn_on_the_clients_clock_and_are_bounded() -> None:
    short = iterations.shortened(ROWS, clock_offset_s=60.0)
    assert short["left_out"] == 0
    assert short["iterations"][0] == {
        "i": 1, "t": 40.0, "run_ms": 400.0, "prompt": [[0, 2048]], "gen": [[3, 1]], "skipped": [[1, "batch full"]], "policy": 4,
    }  # fmt: skip
    many = iterations.shortened(ROWS * 400)
    assert len(many["iterations"]) == iterations.MOST_KEPT
    assert many["left_out"] == 200
