from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.figures import BIN_S, BINS, STALL_WINDOW_S, Figures, Service, Work


def prompt(slot: int, start: float, end: float, tokens: int) -> Service:
    return Service(slot, start, end, tokens, 0)


def test_a_rate_is_tokens_of_the_last_two_seconds() -> None:
    figures = Figures()
    figures.update({}, [prompt(0, 8.0, 9.0, 500), Service(0, 9.0, 9.5, 0, 10)])
    rates = figures.rates(10.0)
    assert (rates.prompt, rates.generated) == pytest.approx((250, 5))
    rates = figures.rates(11.5)
    assert (rates.prompt, rates.generated) == (0, 0)


def test_a_batch_counts_evenly_over_its_duration() -> None:
    figures = Figures()
    figures.update({}, [prompt(0, 7.0, 9.0, 1000)])
    assert figures.rates(10.0).prompt == pytest.approx(250)  # half of it lies in 8..10


def test_while_slots_work_the_window_ends_with_the_last_finished_batch() -> None:
    figures = Figures()
    figures.update({0: Work(1, 0.0, True)}, [prompt(0, 8.0, 10.0, 1000)])
    assert figures.rates(11.5).prompt == pytest.approx(500)
    assert figures.rates(13.0).prompt == pytest.approx(250)  # a batch that long is no rate any more


def test_a_slots_rate_is_over_its_present_work() -> None:
    figures = Figures()
    figures.update({0: Work(1, 9.0, True)}, [prompt(0, 9.0, 10.0, 300)])
    assert figures.rates(10.0).slots == pytest.approx({0: 300})


def test_a_gap_between_two_services_is_a_stall() -> None:
    figures = Figures()
    work = {0: Work(1, 0.0, True), 1: Work(2, 0.0, True)}
    figures.update(work, [prompt(0, 0.0, 1.0, 10), prompt(1, 0.0, 1.0, 10), prompt(0, 1.0, 5.0, 10)])
    figures.update(work, [prompt(1, 5.0, 6.0, 10)])
    assert figures.worst_stall(6.0) == (1, 4.0)
    assert figures.worst_stall(5.0 + 61) == (0, 1.0)  # over a minute ago; slot 0 was last served at 5, batches ended at 6


def test_a_waiting_slot_stalls_until_now_and_a_running_one_until_the_last_batch() -> None:
    figures = Figures()
    figures.update({0: Work(1, 0.0, True), 1: Work(2, 0.5, False)}, [prompt(0, 0.0, 1.0, 10)])
    assert figures.worst_stall(3.0) == (1, 2.5)
    figures.update({0: Work(1, 0.0, True)}, [])
    assert figures.worst_stall(3.0) == (None, 0.0)


def test_time_before_a_slot_was_free_is_the_queues_not_a_stall() -> None:
    figures = Figures()
    figures.update({0: Work(1, 0.0, True)}, [prompt(0, 0.0, 9.0, 10)])
    figures.update({0: Work(2, 1.0, False)}, [])
    assert figures.worst_stall(10.0) == (0, 1.0)


def test_the_first_wait_of_a_task_seen_only_after_its_first_visit_counts() -> None:
    figures = Figures()
    figures.update({0: Work(1, 2.0, True)}, [prompt(0, 5.0, 6.0, 10)])
    assert figures.worst_stall(6.0) == (0, 3.0)


def test_a_slot_without_work_does_not_stall() -> None:
    figures = Figures()
    figures.update({}, [prompt(0, 0.0, 1.0, 10)])
    figures.update({}, [prompt(0, 9.0, 10.0, 10)])
    assert figures.worst_stall(10.0) == (None, 0.0)


def test_work_forgotten_after_a_restart_is_no_stall() -> None:
    figures = Figures()
    figures.update({0: Work(1, 0.0, False)}, [])
    figures.forget_work()
    assert figures.worst_stall(50.0) == (None, 0.0)


def test_a_series_has_a_point_for_each_bin_and_none_where_nobody_watched() -> None:
    figures = Figures()
    figures.watch(100.0, 2)
    figures.watch(108.0, 5)
    figures.watch(109.0, 1)
    series = figures.series(109.5)
    assert series["queue_series"] == [[100.0, 2.0], [102.0, None], [104.0, None], [106.0, None], [108.0, 5.0]]
    assert series["prompt_series"][-1] == [108.0, 0.0]
    assert {len(points) for points in series.values()} == {5}


def test_a_series_reaches_back_to_what_was_reported_of_the_past() -> None:
    figures = Figures()
    figures.update({}, [prompt(0, 100.0, 102.0, 500)])
    figures.watch(110.0, 0)
    assert figures.series(110.0)["prompt_series"][0] == [100.0, 250.0]


def test_a_growing_wait_shows_in_its_series() -> None:
    figures = Figures()
    figures.update({0: Work(1, 100.0, False)}, [])
    for now in (101.0, 103.0, 105.0):
        figures.watch(now, 0)
    assert [value for _, value in figures.series(105.0)["stall_series"]] == [1.0, 3.0, 5.0]


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 400), st.integers(0, 5000)), max_size=8))
def test_no_token_is_lost_or_made_in_a_series(batches: list[tuple[float, float, int]]) -> None:
    figures = Figures()
    end = 1000.0
    figures.watch(end, 0)
    figures.update({}, [prompt(0, end - 20 + at, end - 20 + at, tokens) for at, _, tokens in batches])
    series = figures.series(end)["prompt_series"]
    assert sum((value or 0) * BIN_S for _, value in series) == pytest.approx(sum(tokens for *_, tokens in batches), abs=1)


@given(st.floats(1e9, 2e9), st.floats(0, 1e6))
def test_a_series_is_bounded(start: float, later: float) -> None:
    figures = Figures()
    figures.watch(start, 0)
    figures.update({}, [prompt(0, start, start + later, 10)])
    figures.watch(start + later, 0)
    assert len(figures.series(start + later)["gen_series"]) <= BINS
    assert len(figures.prompt.bins) <= BINS + 1


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 50)), min_size=1, max_size=60))
def test_the_worst_stall_is_the_longest_of_the_window_and_few_are_kept_for_it(steps: list[tuple[int, int]]) -> None:
    """Each step: so many seconds of waiting, then a batch of so many tenths."""
    figures, now, ended = Figures(), 100.0, [(100.0, 0.0)]
    for waited, tenths in steps:
        begin = now + waited
        figures.update({0: Work(1, 100.0, True)}, [Service(0, begin, begin + tenths / 10, 1, 0)])
        ended.append((begin, begin - now))
        now = begin + tenths / 10
    expected = max((length for at, length in ended if at >= now - STALL_WINDOW_S), default=0.0)
    assert figures.worst_stall(now)[1] == pytest.approx(expected)
    lengths = [stall.length for stall in figures.stalls]
    assert lengths == sorted(lengths, reverse=True)
