from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.frames import KEPT_ITERATIONS, KEPT_TASKS, apply, diff, is_empty


def sorted_by_time(points: list[list[Any]]) -> list[list[Any]]:
    return sorted(points, key=lambda point: point[0])


values = st.none() | st.integers(-3, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2)
one_slot = st.fixed_dictionaries({"id": st.integers(0, 3), "state": st.sampled_from(["idle", "prompt"])})
slots = st.lists(one_slot, max_size=4, unique_by=lambda slot: slot["id"])
iterations = st.lists(st.fixed_dictionaries({"i": st.integers(0, 4)}), max_size=5) | st.integers(100, 130).map(
    lambda n: [{"i": i} for i in range(n)][-KEPT_ITERATIONS:]
)
tasks = st.lists(st.fixed_dictionaries({"n": st.integers(0, 4)}), max_size=5)
point = st.tuples(st.integers(0, 6).map(float), st.none() | st.integers(0, 2).map(float)).map(list)
points = st.lists(point, max_size=6, unique_by=lambda one: one[0]).map(sorted_by_time)
one_figures = st.fixed_dictionaries({"rate": st.none() | st.integers(0, 2), "a_series": points, "b_series": points | st.none()})
figures = one_figures | st.none() | st.fixed_dictionaries({"rate": st.integers(0, 2)})
states = st.fixed_dictionaries(
    {
        "tasks": tasks,
        "fairness": values,
        "figures": figures,
        "seq": st.integers(0, 5),
        "t": st.floats(0, 10),
        "health": values,
        "policy": values,
        "slots": slots,
        "iterations": iterations,
    }
)


@given(states, states)
def test_applying_the_difference_gives_the_new_state(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = deepcopy(old)
    assert apply(old, diff(old, new)) == new
    assert old == before


@given(states, st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_a_growing_list_of_iterations_is_sent_as_its_growth(old: dict[str, Any], steps: list[int]) -> None:
    state = {**old, "iterations": []}
    at = 0
    for step in steps:
        added = [{"i": i} for i in range(at, at + step)]
        at += step
        new = {**state, "iterations": [*state["iterations"], *added][-KEPT_ITERATIONS:]}
        delta = diff(state, new)
        assert delta["iterations"] == added
        assert "iterations" not in delta["set"]
        state = apply(state, delta)
        assert state == new


def test_only_slots_that_changed_are_sent() -> None:
    old = {"seq": 1, "t": 1.0, "slots": [{"id": 0, "state": "idle"}, {"id": 1, "state": "idle"}], "iterations": []}
    new = {**old, "seq": 2, "slots": [{"id": 0, "state": "idle"}, {"id": 1, "state": "prompt"}]}
    delta = diff(old, new)
    empty: dict[str, Any] = {"iterations": [], "tasks": [], "figures": {}, "series": {}}
    assert delta == {"seq": 2, "t": 1.0, "set": {}, "slots": [{"id": 1, "state": "prompt"}], **empty}


def test_a_tick_alone_is_empty() -> None:
    old = {"seq": 1, "t": 1.0, "health": "up", "slots": [], "iterations": []}
    assert is_empty(diff(old, {**old, "seq": 2, "t": 2.0}))
    assert not is_empty(diff(old, {**old, "seq": 2, "health": "down"}))


def test_iterations_begun_anew_replace_the_old_ones() -> None:
    old = {"seq": 1, "t": 1.0, "slots": [], "iterations": [{"i": 8}, {"i": 9}]}
    new = {**old, "seq": 2, "iterations": [{"i": 0}]}
    assert diff(old, new)["set"] == {"iterations": [{"i": 0}]}


def test_of_a_series_only_what_is_new_travels() -> None:
    old = {"seq": 1, "t": 1.0, "figures": {"rate": 5, "a_series": [[0.0, 1.0], [2.0, 4.0], [4.0, 3.0]]}}
    new = {"seq": 2, "t": 2.0, "figures": {"rate": 5, "a_series": [[2.0, 4.0], [4.0, 3.5], [6.0, 1.0]]}}
    delta = diff(old, new)
    assert (delta["set"], delta["figures"]) == ({}, {})
    assert delta["series"] == {"a_series": [1, 1, [[4.0, 3.5], [6.0, 1.0]]]}
    assert apply(old, delta) == new


def test_a_series_that_lost_its_end_is_told_too() -> None:
    old = {"seq": 1, "t": 1.0, "figures": {"a_series": [[0.0, 1.0], [2.0, 4.0]]}}
    new = {"seq": 2, "t": 2.0, "figures": {"a_series": [[0.0, 1.0]]}}
    assert apply(old, diff(old, new)) == new


def test_ended_tasks_are_appended_and_the_oldest_go() -> None:
    old = {"seq": 1, "t": 1.0, "tasks": [{"n": n} for n in range(KEPT_TASKS)]}
    new = {"seq": 2, "t": 2.0, "tasks": [{"n": n} for n in range(3, KEPT_TASKS + 3)]}
    delta = diff(old, new)
    assert delta["tasks"] == [{"n": n} for n in range(KEPT_TASKS, KEPT_TASKS + 3)]
    assert apply(old, delta) == new
