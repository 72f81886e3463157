from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler_api.frames import apply, diff
from scheduler_api.health import Health
from scheduler_api.kinds.base import Condition, Reading
from scheduler_api.kinds.engine_state import EngineReader
from scheduler_api.observer.board import Board, Identity
from scheduler_api.observer.marks import policy_mark
from tests.support.stub_servers import FakeEngine, engine_slot, iteration
from tests.support.tasks import ended

NOW = 1_764_500_000.0


def board() -> Board:
    return Board(Identity(1, "local", "engine", "http://127.0.0.1:8080"))


def told(engine: FakeEngine, t: float = NOW, reader: EngineReader | None = None) -> Reading:
    data = {"gap": False, "state": {**engine.state(), "t": t}, "iterations": engine.iterations}
    return (reader or EngineReader()).update(data)


def test_a_board_without_reports_says_so_in_strict_json() -> None:
    state = board().state(NOW, 1)
    assert (state["health"]["state"], state["health"]["text"]) == ("unknown", "Not observed yet")
    assert state["missing"]["slots"] == "Not observed yet."
    json.dumps(state, allow_nan=False)


def test_an_idle_server_costs_no_frame_until_a_bin_ends() -> None:
    it, engine = board(), FakeEngine()
    it.apply(told(engine), NOW)
    first = it.state(NOW + 0.1, 1)
    it.apply(told(engine, NOW + 1), NOW + 1)
    delta = diff(first, it.state(NOW + 1.2, 2))
    assert (delta["set"], delta["slots"], delta["iterations"]) == ({}, [], [])
    later = diff(first, it.state(NOW + 2.5, 2))
    assert (later["set"], later["series"].keys()) == ({}, {"prompt_series", "gen_series", "queue_series", "stall_series"})


def test_what_a_down_server_last_told_is_not_shown_as_now() -> None:
    it = board()
    it.apply(told(FakeEngine(slots=[engine_slot(0, state="generating", task=3)])), NOW)
    it.apply(Condition(Health.DOWN, "connection refused", seen=False), NOW + 5)
    state = it.state(NOW + 6, 2)
    assert (state["slots"], state["queue"], state["policy"], state["figures"]["gen_tps"]) == ([], None, None, None)
    assert state["missing"]["slots"] == "Down: connection refused."
    assert state["health"]["seen_at"] == NOW


def test_a_silent_server_keeps_its_last_slots_with_their_age() -> None:
    it = board()
    it.apply(told(FakeEngine(slots=[engine_slot(0, state="generating", task=3)])), NOW)
    it.apply(Condition(Health.SILENT, seen=False), NOW + 5)
    state = it.state(NOW + 42, 2)
    assert state["health"]["text"] == "Busy, no answer for 42 s"
    assert state["slots"][0]["state"] == "generating"


def test_a_restart_since_the_last_observer_is_noticed() -> None:
    first = board()
    first.apply(told(FakeEngine(started_at=1000.0)), NOW)
    second = board()
    second.restore(first.state(NOW, 7))
    second.apply(told(FakeEngine(started_at=2000.0)), NOW + 9)
    assert [mark["text"] for mark in second.state(NOW + 9, 8)["marks"]] == ["restarted"]


def test_a_policy_switch_while_the_observer_was_away_is_marked() -> None:
    engine = FakeEngine()
    first = board()
    first.apply(told(engine), NOW)
    second = board()
    second.restore(first.state(NOW, 7))
    engine.version, engine.requested = 2, {"prefill_order": "rotating"}
    second.apply(told(engine), NOW + 9)
    [mark] = second.marks
    assert mark["text"] == "prefill order: physical to rotating"


def test_another_clock_on_the_servers_machine_does_not_empty_its_figures() -> None:
    it = board()
    behind = NOW - 3600
    it.apply(told(FakeEngine(iterations=[iteration(1, behind - 1, prompt=[[0, 500]], ms=1000)]), behind), NOW)
    assert it.state(NOW, 1)["figures"]["prompt_tps"] == 250


def test_the_name_from_the_audit_goes_to_the_newest_mark_of_that_version() -> None:
    it = board()
    it.marks = [{"version": 2, "by": "", "t": 1}, {"version": 2, "by": "", "t": 2}, {"version": 3, "by": "", "t": 3}]
    it.name_author(2, "mira")
    assert [mark["by"] for mark in it.marks] == ["", "mira", ""]


def test_states_and_frames_follow_each_other_through_a_busy_life() -> None:
    it, reader, engine = board(), EngineReader(), FakeEngine()
    shown = state = it.state(NOW, 1)
    for step in range(1, 400):
        now = NOW + step * 0.25
        task = step // 20
        engine.slots = [engine_slot(0, state="generating", task=task, n_generated=step, submitted_at=now), engine_slot(1)]
        engine.iterations = [iteration(i, now, gen=[[0, 1]], ms=50) for i in range(step * 5 - 4, step * 5 + 1)]
        if step % 97 == 0:
            it.apply(Condition(Health.DOWN, "connection refused", seen=False), now)
        else:
            it.apply(told(engine, now, reader), now)
        new = it.state(now, step + 1)
        shown = apply(shown, diff(state, new))
        state = new
        assert shown == json.loads(json.dumps(state, allow_nan=False))
    assert len(state["iterations"]) == 120


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"phase": "continuous"}, {"phase": "barrier"}, "phase: continuous to barrier"),
        ({"a": None, "b": True}, {"a": 4, "b": False}, "a: none to 4, b: on to off"),
        ({"a": 1}, {"a": 1}, "same policy set again"),
    ],
)
def test_marks_tell_changes_in_words(before: Any, after: Any, text: str) -> None:
    mark = policy_mark({"version": 1, "requested": before}, {"version": 2, "requested": after, "reason": "why"}, 5.0)
    assert mark is not None
    assert (mark["text"], mark["by"], mark["t"]) == (text, "why", 5.0)


@pytest.mark.parametrize(
    ("before", "after"), [(None, {"version": 1}), ({"version": 1}, {"version": 1}), ({"version": 1}, None), ({}, {})]
)
def test_no_mark_without_a_change(before: Any, after: Any) -> None:
    assert policy_mark(before, after, 5.0) is None


def test_fairness_is_made_once_a_second_and_only_when_something_happened() -> None:
    it, reader, engine = board(), EngineReader(), FakeEngine()
    made = []
    for step in range(40):
        now = NOW + step * 0.25
        engine.iterations = [iteration(step + 1, now - 0.1, prompt=[[0, 10]], ms=90)] if step < 12 else []
        it.apply(told(engine, now, reader), now)
        made.append(it.state(now, step + 1)["fairness"])
    assert len({id(each) for each in made[:12]}) <= 4
    assert made[14]["slots"] == [{"slot": 0, "prompt_tokens": 120, "gen_tokens": 0, "busy_s": 0.0, "share": 1.0}]
    assert made[-1] is made[20]  # nothing but its range moved on


def test_the_fairness_of_a_server_that_is_not_seen_is_not_known() -> None:
    it = board()
    it.apply(told(FakeEngine(iterations=[iteration(1, NOW - 1, prompt=[[0, 10]], ms=90)])), NOW)
    assert it.state(NOW, 1)["fairness"] is not None
    it.apply(Condition(Health.DOWN, "connection refused", seen=False), NOW + 1)
    assert it.state(NOW + 1, 2)["fairness"] is None


def test_ended_tasks_are_in_the_state_and_begin_anew_with_another_process() -> None:
    it, reader, engine = board(), EngineReader(), FakeEngine()
    for first in (1, 101):
        data = {"gap": False, "state": {**engine.state(), "t": NOW}, "tasks": [ended(n) for n in range(first, first + 100)]}
        it.apply(reader.update(data), NOW)
    assert [task["n"] for task in it.state(NOW, 1)["tasks"]] == list(range(81, 201))
    engine.started_at = 2000.0
    it.apply(reader.update({"gap": False, "state": {**engine.state(), "t": NOW}, "tasks": [ended(1)]}), NOW)
    assert [task["n"] for task in it.state(NOW, 2)["tasks"]] == [1]
