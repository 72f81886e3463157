"""Guard rails: what they read in a live state, and when they are met."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_api.policies.guards import Condition, Memory, Metric, Reading, from_json, met, percentile, read, words

NOW = 1000.0
CHANGED = 900.0
ERRORS = Condition(Metric.ERROR_RATE, 0.05, 60.0, 20)
WAIT = Condition(Metric.OLDEST_WAIT, 30.0, 10.0)
TTFT = Condition(Metric.TTFT_P95, 5.0, 60.0, 4)


def state(**parts: Any) -> dict[str, Any]:
    return {"t": NOW, "health": {"state": "up"}, "tasks": [], "slots": [], "queue": {"depth": 0, "oldest_s": None}} | parts


def task(
    finished: float = NOW - 1, reason: str = "eos", submitted: float = CHANGED + 1, ttft: float | None = 1.0
) -> dict[str, Any]:
    first = None if ttft is None else submitted + ttft
    return {"finished_at": finished, "reason": reason, "submitted_at": submitted, "first_token_at": first}


def why(condition: Condition, shown: dict[str, Any] | None, now: float = NOW, memory: Memory | None = None) -> str:
    return met([condition], shown, CHANGED, now, memory or Memory())


def test_an_error_rate_over_its_threshold_is_met_with_the_numbers_that_say_so() -> None:
    tasks = [task(reason="error")] * 2 + [task()] * 18
    assert why(ERRORS, state(tasks=tasks)) == "error rate 10 % in the last 60 s (2 of 20 requests), over 5 %"


@pytest.mark.parametrize(
    "tasks",
    [
        [task(reason="error")] * 19,  # too few
        [task(reason="error"), *[task()] * 19],  # at the threshold, not over it
        [*[task(reason="error", finished=NOW - 61)] * 5, *[task()] * 20],  # too long ago
        [*[task(reason="error", finished=CHANGED - 1)] * 30, *[task()] * 20],  # before the change
        [*[task(reason="cancelled")] * 30, *[task()] * 20],  # who left is no error
    ],
)
def test_what_is_not_known_well_enough_or_not_of_the_change_meets_nothing(tasks: list[dict[str, Any]]) -> None:
    assert why(ERRORS, state(tasks=tasks)) == ""


def test_a_wait_has_to_last() -> None:
    memory, shown = Memory(), state(queue={"depth": 2, "oldest_s": 40.0})
    assert why(WAIT, shown, NOW, memory) == ""
    assert why(WAIT, shown | {"t": NOW + 9}, NOW + 9, memory) == ""
    assert why(WAIT, shown | {"t": NOW + 10}, NOW + 10, memory) == "the oldest wait is 40 s, over 30 s for 10 s"


def test_a_wait_that_ended_or_was_not_seen_in_between_begins_anew() -> None:
    for between in (state(t=NOW + 5), state(t=NOW + 5, health={"state": "down"}), None):
        memory, shown = Memory(), state(queue={"depth": 2, "oldest_s": 40.0})
        why(WAIT, shown, NOW, memory)
        why(WAIT, between, NOW + 5, memory)
        assert why(WAIT, shown | {"t": NOW + 11}, NOW + 11, memory) == ""


def test_waits_of_slots_count_from_the_change_on() -> None:
    slots = [
        {"id": 0, "state": "waiting", "submitted_at": 10.0, "since": 20.0},
        {"id": 1, "state": "generating", "submitted_at": 1.0},
    ]
    assert read(WAIT, state(slots=slots), CHANGED, NOW) == Reading(100.0, 1)


def test_p95_ttft_is_over_requests_that_came_after_the_change() -> None:
    slow = [task(ttft=8.0)] * 3 + [task(ttft=1.0)]
    assert why(TTFT, state(tasks=slow)) == "p95 TTFT 8 s in the last 60 s (4 requests), over 5 s"
    old = [task(ttft=8.0, submitted=CHANGED - 1)] * 9
    assert why(TTFT, state(tasks=old)) == ""


def test_one_that_still_waits_counts_once_it_is_over_the_threshold() -> None:
    waiting = [{"id": n, "state": "waiting", "task": n, "submitted_at": NOW - 6, "first_token_at": None} for n in range(4)]
    assert "p95 TTFT 6 s" in why(TTFT, state(slots=waiting))
    fresh = [slot | {"submitted_at": NOW - 4} for slot in waiting]
    assert why(TTFT, state(slots=fresh)) == ""


def test_an_old_state_tells_nothing() -> None:
    tasks = [task(reason="error")] * 30
    assert why(ERRORS, state(tasks=tasks, t=NOW - 31)) == ""


@pytest.mark.parametrize(
    "value",
    [{}, {"metric": "latency", "over": 1, "for_s": 1}, {"metric": "error_rate", "over": 1.0, "for_s": 1},
     {"metric": "oldest_wait", "over": float("nan"), "for_s": 1}, {"metric": "oldest_wait", "over": 1, "for_s": 0},
     {"metric": "ttft_p95", "over": 1, "for_s": 1, "samples": 0}],
)  # fmt: skip
def test_what_is_no_condition_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"condition|range|valid"):
        from_json(value)


def test_nearest_rank() -> None:
    assert percentile([float(n) for n in range(1, 21)], 0.95) == 19.0
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([], 0.95) is None


def test_in_words() -> None:
    assert words(ERRORS) == "error rate over 5 % in 60 s, from 20 requests on"
    assert words(TTFT) == "p95 TTFT over 5 s in 60 s, from 4 requests on"
    assert words(WAIT) == "oldest wait over 30 s for 10 s"
