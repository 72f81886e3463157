"""Every figure of the fairness object on iterations and tasks made by hand, with answers known beforehand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.figures import Service
from scheduler_api.history import histogram
from scheduler_api.history.fairness import fairness, jain, percentile
from scheduler_api.history.recorder import Look, Recorder
from tests.support.stub_servers import engine_slot, iteration
from tests.support.tasks import ended

BIN = 2 ** (1 / histogram.PER_OCTAVE)

# Slot 0 has a long prompt from "doc" (task 101), slot 1 a short one from "chat" (task 102) that comes at 0.5 and waits until 3,
# and then generates 3 tokens at 4.0, 4.1 and 4.4. Slot 0's prompt is done at 4; it generates once.
ITERATIONS = [
    iteration(1, 0.0, prompt=[[0, 100]], ms=1000),
    iteration(2, 1.0, prompt=[[0, 100]], ms=1000),
    iteration(3, 2.0, prompt=[[0, 100]], ms=1000),
    iteration(4, 3.0, prompt=[[0, 20], [1, 30]], ms=1000),
    iteration(5, 4.0, gen=[[0, 1], [1, 1]], ms=100),
    iteration(6, 4.1, gen=[[1, 1]], ms=300),
    iteration(7, 4.4, gen=[[1, 1]], ms=100),
]
TASKS = [
    ended(1, i=5, slot=0, client="doc", n_prompt=400, n_cached=80, submitted_at=0.0, first_visit_at=0.0, prompt_done_at=4.0,
          first_token_at=4.0, finished_at=4.1),
    ended(2, i=7, slot=1, client="chat", n_prompt=100, n_cached=70, submitted_at=0.5, first_visit_at=3.0, prompt_done_at=4.0,
          first_token_at=4.0, finished_at=4.5),
]  # fmt: skip


def found(t_from: float = 0.0, t_to: float = 10.0, slots: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return fairness(ITERATIONS, TASKS, slots or [], t_from, t_to)


def test_shares_of_slots_and_clients_are_of_tokens_in_batches() -> None:
    it = found()
    assert it["slots"] == [
        {"slot": 0, "prompt_tokens": 320, "gen_tokens": 1, "busy_s": 4.1, "share": round(321 / 354, 4)},
        {"slot": 1, "prompt_tokens": 30, "gen_tokens": 3, "busy_s": 4.0, "share": round(33 / 354, 4)},
    ]
    assert it["clients"] == [
        {"client": "doc", "tokens": 321, "share": round(321 / 354, 4), "tasks": 1},
        {"client": "chat", "tokens": 33, "share": round(33 / 354, 4), "tasks": 1},
    ]
    assert it["jain_slots"] == it["jain_clients"] == round(354**2 / (2 * (321**2 + 33**2)), 4)


def test_the_longest_wait_of_a_slot_with_work_is_the_service_gap() -> None:
    it = found()
    assert (it["max_service_gap_s"], it["max_service_gap_slot"], it["stalls"]) == (2.5, 1, 1)


def test_a_gap_is_counted_from_the_beginning_of_the_range() -> None:
    it = found(t_from=1.0)
    assert (it["max_service_gap_s"], it["max_service_gap_slot"]) == (2.0, 1)


def test_a_gap_that_still_lasts_counts_and_is_the_oldest_wait() -> None:
    it = found(t_to=2.5)
    assert (it["max_service_gap_s"], it["max_service_gap_slot"]) == (2.0, 1)
    assert (it["oldest_wait_s"], it["oldest_wait_slot"], it["stalls"]) == (2.0, 1, 1)


def test_a_slot_in_the_batch_that_runs_at_the_end_does_not_wait() -> None:
    it = found(t_to=3.5)
    assert (it["oldest_wait_s"], it["oldest_wait_slot"]) == (0.0, None)


def test_a_running_task_is_in_the_slots_that_are_given() -> None:
    slots = [engine_slot(2, state="waiting", task=7, client="late", submitted_at=6.0)]
    it = found(slots=slots)
    assert (it["oldest_wait_s"], it["oldest_wait_slot"], it["max_service_gap_slot"]) == (4.0, 2, 2)
    assert it["slots"][-1] == {"slot": 2, "prompt_tokens": 0, "gen_tokens": 0, "busy_s": 4.0, "share": 0.0}


def test_token_gaps_are_between_the_ends_of_batches_that_generated_for_one_task() -> None:
    it = found()
    assert (it["worst_itl_s"], it["worst_itl_slot"], it["itl"]["n"]) == (pytest.approx(0.3), 1, 2)
    assert (it["itl"]["p50"], it["itl"]["p99"]) == (pytest.approx(0.2, rel=0.022), pytest.approx(0.298, rel=0.022))


def test_no_token_gap_reaches_from_one_task_to_the_next_in_its_slot() -> None:
    iterations = [iteration(1, 0.0, gen=[[0, 1]], ms=100), iteration(2, 5.0, gen=[[0, 1]], ms=100)]
    tasks = [ended(1, i=1, slot=0, submitted_at=0.0, finished_at=0.1), ended(2, i=2, slot=0, submitted_at=5.0, finished_at=5.1)]
    it = fairness(iterations, tasks, [], 0.0, 6.0)
    assert (it["itl"]["n"], it["worst_itl_s"], it["max_service_gap_s"]) == (0, None, 0.0)


def test_ttft_is_from_submission_to_the_first_token() -> None:
    assert found()["ttft"] == {"p50": 3.75, "p95": 3.975, "p99": 3.995, "n": 2}


def test_cache_hit_is_of_the_prompt_tokens_of_ended_tasks() -> None:
    assert found()["cache_hit"] == 0.3
    assert found(t_to=3.0)["cache_hit"] is None


def test_tasks_that_ended_without_a_slot_or_token_count_as_tasks_alone() -> None:
    gone = ended(3, i=7, slot=-1, client="chat", reason="cancelled", submitted_at=1.0, assigned_at=None, first_visit_at=None,
                 prompt_done_at=None, first_token_at=None, finished_at=2.0)  # fmt: skip
    it = fairness(ITERATIONS, [*TASKS, gone], [], 0.0, 10.0)
    assert [client["tasks"] for client in it["clients"]] == [1, 2]
    assert (it["cache_hit"], it["ttft"]["n"]) == (0.3, 2)


def test_beyond_twelve_clients_the_rest_is_others() -> None:
    iterations = [iteration(n, float(n), prompt=[[0, 100 - n]], ms=10) for n in range(15)]
    tasks = [ended(n, i=n, slot=0, client=f"client {n:02}", submitted_at=float(n), finished_at=n + 0.01) for n in range(15)]
    clients = fairness(iterations, tasks, [], 0.0, 20.0)["clients"]
    assert [client["client"] for client in clients] == [*(f"client {n:02}" for n in range(12)), "others"]
    share = pytest.approx(261 / 1395, abs=1e-4)
    assert clients[-1] == {"client": "others", "tokens": 88 + 87 + 86, "share": share, "tasks": 3, "others": 3}


def test_nothing_is_null_and_not_zero() -> None:
    it = fairness([], [], [], 0.0, 10.0)
    assert (it["slots"], it["clients"], it["jain_slots"], it["jain_clients"], it["cache_hit"], it["worst_itl_s"]) == (
        [],
        [],
        *[None] * 4,
    )
    assert it["ttft"] == it["itl"] == {"p50": None, "p95": None, "p99": None, "n": 0}


def test_jains_index() -> None:
    assert jain([5, 5, 5, 5]) == 1
    assert jain([8, 0, 0, 0]) == 0.25
    assert jain([3, 1]) == 0.8
    assert jain([]) is jain([0, 0]) is None


def test_percentiles_interpolate_between_order_statistics() -> None:
    assert percentile([4, 1, 2, 3], 0.5) == 2.5
    assert percentile([1, 2, 3, 4, 5], 0.95) == pytest.approx(4.8)
    assert percentile([7], 0.99) == 7


@given(st.lists(st.floats(0.0002, 1000), min_size=1, max_size=60), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_from_counts_is_in_the_bin_of_an_order_statistic_beside_it(values: list[float], q: float) -> None:
    counts: histogram.Counts = {}
    for value in values:
        histogram.count(counts, value)
    ordered = sorted(values)
    low = ordered[int(q * (len(values) - 1))]
    high = ordered[min(int(q * (len(values) - 1)) + 1, len(values) - 1)]
    told = histogram.percentile(counts, q)
    assert told is not None
    assert low / BIN**0.51 <= told <= high * BIN**0.51


@given(st.lists(st.floats(0.0001, 2000), max_size=30), st.lists(st.floats(0.0001, 2000), max_size=30))
def test_counts_of_two_stretches_add_up(some: list[float], more: list[float]) -> None:
    one, two, both = histogram.Counts.__value__(), histogram.Counts.__value__(), histogram.Counts.__value__()
    for value in some:
        histogram.count(one, value)
    for value in more:
        histogram.count(two, value)
    for value in [*some, *more]:
        histogram.count(both, value)
    histogram.add(one, two)
    assert one == both == histogram.load(histogram.dump(both))


def look(t: float, slots: list[dict[str, Any]], why: str = "") -> Look:
    return Look(t, why, slots, 0, None, None, {}, True)


def test_the_last_minute_has_the_figures_of_the_same_range() -> None:
    """Fed piece by piece, in updates that cut a task's life, the recorder tells what the pure function tells of the whole."""
    recorder = Recorder()
    slots = [engine_slot(0, state="prompt", task=101, client="doc", submitted_at=0.0),
             engine_slot(1, state="waiting", task=102, client="chat", submitted_at=0.5)]  # fmt: skip
    for at, each in enumerate(ITERATIONS):
        done = [task for task in TASKS if task["i"] == each["i"]]
        slots = [slot for slot in slots if slot["task"] not in {task["task"] for task in done}]
        recorder.update(each["t"] + each["run_ms"] / 1000, [each], [], done, slots)
        recorder.look(look(each["t"] + each["run_ms"] / 1000, slots))
        assert at < 5 or recorder.tasks
    it = recorder.fairness(10.0, batches=True)
    assert it is not None
    assert {**it, "from": 0, "to": 0} == {**found(), "from": 0, "to": 0}
    assert recorder.minute is not None
    row = recorder.minute.row()
    assert (row["prompt_tokens"], row["generated_tokens"], row["iterations"], row["worst_stall_s"]) == (350, 4, 7, 2.5)
    assert (sum(row["itl"].values()), sum(row["ttft"].values()), row["tasks"]) == (2, 2, {"limit": 2})
    assert row["clients"] == {"doc": 321, "chat": 33}


def test_what_a_server_without_batches_does_not_tell_is_null() -> None:
    recorder = Recorder()
    slots = [engine_slot(0, state="generating", task=1, submitted_at=0.0)]
    recorder.update(1.0, [], [Service(0, 0.0, 1.0, 40, 5)], [], slots)
    it = recorder.fairness(2.0, batches=False)
    assert it is not None
    assert it["slots"] == [{"slot": 0, "prompt_tokens": 40, "gen_tokens": 5, "busy_s": 2.0, "share": 1.0}]
    unknown = ("jain_clients", "max_service_gap_s", "oldest_wait_s", "stalls", "worst_itl_s", "cache_hit")
    assert {it[name] for name in unknown} == {None}
    assert (it["clients"], it["ttft"]["p50"], it["itl"]["n"]) == ([], None, 0)
