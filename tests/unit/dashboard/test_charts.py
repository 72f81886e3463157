"""Figures with known answers: what is drawn, where, and that it is strict JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard import charts
from dashboard.charts import base, words
from dashboard.charts.distribution import percentile
from dashboard.charts.load import block_order
from tests.support.sample_runs import START, make_block, make_results

ROWS: list[tuple[int, float | None, float | None]] = [(1, 5.0, 1.25), (2, 4.8, 1.2), (3, 5.2, None)]


def strict(figure: dict[str, Any]) -> str:
    """JSON without NaN and Infinity; ValueError on them."""
    return json.dumps(figure, allow_nan=False)


def colours(part: Any, key: str = "") -> list[str]:
    if isinstance(part, dict):
        return [colour for name, value in part.items() for colour in colours(value, name)]
    if isinstance(part, list):
        return [colour for value in part for colour in colours(value, key)]
    return [part] if isinstance(part, str) and key.endswith("color") else []


def texts(figure: dict[str, Any]) -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"]]


# -- pairs


def test_a_pair_without_one_arm_has_one_dot_and_no_line() -> None:
    joined, a, b = charts.pairs(ROWS)["data"]
    assert a["y"] == [5.0, 4.8, 5.2]
    assert b["y"] == [1.25, 1.2]
    assert joined["y"] == [5.0, 1.25, None, 4.8, 1.2, None]


def test_pairs_far_apart_start_at_zero_and_say_how_much_sooner() -> None:
    figure = charts.pairs(ROWS)
    assert figure["layout"]["yaxis"]["range"] == [0.0, 6.0]
    assert figure["layout"]["yaxis"]["ticktext"] == ["0", "2", "4", "6 s"]
    assert texts(figure) == ["4.0", "4.0"]


def test_pairs_close_together_have_a_cut_axis_with_labelled_ends() -> None:
    figure = charts.pairs([(1, 25.3, 25.5), (2, 25.1, 25.0)], as_percent=True)
    low, high = figure["layout"]["yaxis"]["range"]
    assert 24 <= low < 25.0
    assert high > 25.5
    assert figure["layout"]["yaxis"]["tickvals"][0] == low
    assert figure["layout"]["yaxis"]["tickvals"][-1] == high
    assert texts(figure) == ["+0.8 %", "−0.4 %"]


def test_planned_pairs_keep_their_place_on_the_axis() -> None:
    assert charts.pairs(ROWS, planned=8)["layout"]["xaxis"]["range"] == [0.5, 8.5]
    assert charts.pairs(ROWS)["layout"]["xaxis"]["range"] == [0.5, 3.5]


def test_many_pairs_have_thin_ticks_and_no_labels() -> None:
    figure = charts.pairs([(number, 5.0, 1.0) for number in range(1, 41)])
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "5", "10", "15", "20", "25", "30", "35", "40"]
    assert texts(figure) == []


def test_each_pair_has_a_readout_over_its_own_range() -> None:
    readouts = charts.pairs(ROWS)["readouts"]
    assert [(each["x0"], each["x1"]) for each in readouts] == [(0.5, 1.5), (1.5, 2.5), (2.5, 3.5)]
    assert readouts[0]["text"] == "Pair 1: A 5.00 s, B 1.25 s: 4.0 times sooner"
    assert readouts[2]["text"] == "Pair 3: no value of B, so it counts nowhere"


def test_no_pair_is_said_in_the_chart() -> None:
    figure = charts.pairs([], planned=8)
    assert texts(figure) == ["no pair is done yet"]
    assert figure["layout"]["yaxis"]["tickvals"] == []
    assert figure["readouts"] == []


# -- distribution


def test_percentile_interpolates_linearly() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)


def test_a_distribution_climbs_by_equal_steps_and_ends_at_the_axis() -> None:
    steps, marks, *rest = charts.distribution([4.0, 5.0], [1.0, 2.0])["data"]
    assert steps["x"] == [0.0, 4.0, 5.0, 6.0]
    assert steps["y"] == [0.0, 50.0, 100.0, 100.0]
    assert (marks["x"], marks["y"]) == ([4.5], [50.0])
    assert len(rest) == 2


def test_a_95th_percentile_is_drawn_from_twenty_requests_on() -> None:
    few, many = charts.distribution([1.0] * 19, [2.0] * 19), charts.distribution([1.0] * 20, [2.0] * 20)
    assert few["layout"]["yaxis"]["ticktext"] == ["0", "50", "100 %"]
    assert many["layout"]["yaxis"]["ticktext"] == ["0", "50", "95 %"]
    assert any(text.startswith("p95 ") for text in texts(many))


def test_medians_that_lie_together_share_a_label() -> None:
    assert texts(charts.distribution([5.0], [5.1])) == ["A 5.00 s, B 5.10 s"]
    assert texts(charts.distribution([5.0], [1.0])) == ["A 5.00 s", "B 1.00 s"]


def test_an_empty_distribution_draws_nothing() -> None:
    figure = charts.distribution([], [])
    assert figure["data"] == []
    assert figure["readouts"] == []
    assert figure["alt"] == "A: no request is done; B: no request is done"


# -- timeline


def lane_names(figure: dict[str, Any]) -> list[str]:
    return [text for text in texts(figure) if text.startswith("<b>")]


def test_a_timeline_has_one_lane_for_each_slot_and_a_bar_for_each_batch() -> None:
    block = make_block("physical")["timeline"]
    figure = charts.timeline(block, charts.timeline_range([block]))
    assert lane_names(figure) == ["<b>0</b>  cold", "<b>1</b>  short"]
    assert figure["rows"] == 2
    bars = {trace["y"][0]: len(trace["x"]) for trace in figure["data"] if trace["name"] == "prompt"}
    served = {slot: sum(1 for step in block["iterations"] if any(part[0] == slot for part in step["prompt"])) for slot in (0, 1)}
    assert bars == served


def test_time_counts_from_the_cold_request() -> None:
    block = make_block("physical")["timeline"]
    figure = charts.timeline(block, charts.timeline_range([block]))
    first = next(trace for trace in figure["data"] if trace["name"] == "prompt")
    assert first["base"][0] == pytest.approx(block["iterations"][0]["t"] - START, abs=1e-6)


def test_a_wait_is_a_thin_line_with_its_reason_and_the_time_before_it_is_dotted() -> None:
    block = make_block("physical")["timeline"]
    figure = charts.timeline(block, charts.timeline_range([block]))
    waiting = next(trace for trace in figure["data"] if trace["name"] == "waiting")
    queued = next(trace for trace in figure["data"] if trace["name"] == "queued" and trace["y"][0] == 1)
    assert waiting["mode"] == "lines"
    assert queued["line"]["dash"] == "2px,3px"
    assert queued["x"][1] == pytest.approx(waiting["x"][0])
    total = sum(end - start for start, end in zip(waiting["x"][::3], waiting["x"][1::3], strict=True))
    count = sum(1 for step in block["iterations"] if step["skipped"])
    assert f"waits {total:.1f} s: batch full, slot 0 took 2048 of 2048, {count} times" in texts(figure)


def test_both_arms_share_the_range_that_holds_all_requests() -> None:
    blocks = [make_block(order, start=START + 50)["timeline"] for order in ("physical", "rotating")]
    low, high = charts.timeline_range(blocks)
    ends = [request["done_at"] - START - 50 for block in blocks for request in block["requests"]]
    assert low < 0
    assert high > max(ends)


def test_generation_is_soft_and_neighbouring_steps_are_one_bar() -> None:
    block = make_block("physical", generate=30)["timeline"]
    figure = charts.timeline(block, charts.timeline_range([block]))
    generation = [trace for trace in figure["data"] if trace["name"] == "generation"]
    assert [trace["marker"]["color"] for trace in generation] == ["--slot-0-soft", "--slot-1-soft"]
    assert all(len(trace["x"]) < 5 for trace in generation)


def test_held_is_hatched() -> None:
    block = make_block("physical")["timeline"]
    block["iterations"][-1]["held"] = [0]
    held = next(trace for trace in charts.timeline(block, charts.timeline_range([block]))["data"] if trace["name"] == "held")
    assert held["marker"]["pattern"]["shape"] == "/"


def test_without_iterations_the_service_is_one_bar_from_first_visit_to_done() -> None:
    requests = [
        {"role": "cold", "slot": 0, "sent_at": 10.0, "first_visit_at": 10.5, "done_at": 14.0},
        {"role": "short", "slot": 1, "sent_at": 11.0, "first_visit_at": None, "done_at": None},
    ]
    block = {"iterations": [], "requests": requests}
    figure = charts.timeline(block, charts.timeline_range([block]))
    bar = next(trace for trace in figure["data"] if trace["name"] == "prompt")
    assert (bar["base"], bar["x"]) == ([0.5], [3.5])
    assert [readout["text"] for readout in figure["readouts"]] == ["cold took 4.00 s", "short sent at 1.00 s, not done"]


@pytest.mark.parametrize("block", [{}, {"iterations": [], "requests": []}, {"requests": None, "iterations": None}])
def test_an_empty_block_is_an_empty_chart(block: dict[str, Any]) -> None:
    figure = charts.timeline(block, charts.timeline_range([block]))
    assert figure["data"] == []
    assert figure["alt"] == "No request was sent"
    strict(figure)


def test_a_ninth_slot_has_the_first_hue_again_with_hatching() -> None:
    block = make_block("physical")["timeline"]
    for step in block["iterations"]:
        step["prompt"] = [[slot + 8, tokens] for slot, tokens in step["prompt"]]
        step["skipped"] = []
    for request in block["requests"]:
        request["slot"] += 8
    fill = next(trace for trace in charts.timeline(block, charts.timeline_range([block]))["data"] if trace["name"] == "prompt")[
        "marker"
    ]
    assert fill["color"] == "--slot-0"
    assert fill["pattern"]["shape"] == "/"


# -- forest


def test_the_log_axis_holds_the_intervals_and_puts_one_where_it_belongs() -> None:
    measures = [{"key": "k", "ratio": {"median": 0.5, "low": 0.4, "high": 0.6, "n": 8}}]
    drawn = charts.forest(measures)
    assert [tick.text for tick in drawn.ticks] == ["1/4", "1/2", "1", "2"]
    assert drawn.one == pytest.approx(66.67)
    assert drawn.marks["k"].at == pytest.approx(33.33)
    assert drawn.marks["k"].low is not None
    assert drawn.marks["k"].low < 33.33


def test_what_lies_beyond_the_axis_becomes_an_arrow() -> None:
    measures = [{"key": "far", "ratio": {"median": 0.01, "low": 0.001, "high": 0.02, "n": 8}}]
    mark = charts.forest(measures).marks["far"]
    assert (mark.at, mark.arrow, mark.low) == (0.0, "left", 0.0)


def test_a_ratio_without_interval_has_a_dot_alone_and_an_unknown_one_nothing() -> None:
    few = {"key": "few", "ratio": {"median": 0.5, "low": None, "high": None, "n": 2}}
    none = {"key": "none", "ratio": {"median": None, "low": None, "high": None, "n": 0}}
    marks = charts.forest([few, none]).marks
    assert marks["few"].low is None
    assert "none" not in marks


def test_the_noise_floor_lies_around_one() -> None:
    drawn = charts.forest([], (1 / 1.02, 1.02))
    assert drawn.floor is not None
    assert drawn.floor.low < drawn.one < drawn.floor.low + drawn.floor.width


# -- load


def test_the_planned_load_is_cut_into_batches() -> None:
    drawn = charts.planned_load(18_000, 1_500, 2_048, 0.1, 8)
    assert drawn.batches == 9
    assert len(drawn.cold) == 9
    assert drawn.cold[-1].width < drawn.cold[0].width
    assert drawn.left < drawn.short_at < drawn.cold[1].x
    assert drawn.short.x + drawn.short.width <= 100


def test_pairs_are_turned_so_that_drift_hits_both_arms() -> None:
    assert "".join(block_order(3)) == "ABBAAB"
    drawn = charts.planned_load(100, 10, 32, 0.1, 40)
    assert (len(drawn.order), drawn.more) == (32, 48)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 8192), st.floats(0, 0.9), st.integers(1, 100))
def test_no_size_draws_outside_the_picture(cold: int, short: int, n_batch: int, share: float, pairs: int) -> None:
    drawn = charts.planned_load(cold, short, n_batch, share, pairs)
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.01 for bar in (*drawn.cold, drawn.warm, drawn.short))
    assert len(drawn.order) + drawn.more == 2 * pairs


# -- all of them


@pytest.mark.parametrize("count", [0, 1, 8, 40])
def test_every_figure_is_strict_json_and_names_colours_of_the_theme(count: int) -> None:
    found = make_results(count)
    rows = [(pair["pair"], pair["A"]["short"]["wall_s"], pair["B"]["short"]["wall_s"]) for pair in found["pairs"]]
    over = charts.timeline_range(found["timelines"].values())
    figures = [
        charts.pairs(rows),
        charts.distribution([row[1] for row in rows], [row[2] for row in rows]),
        *(charts.timeline(block, over) for block in found["timelines"].values()),
    ]
    for figure in figures:
        strict(figure)
        assert all(colour.startswith("--") or colour == "rgba(0,0,0,0)" for colour in colours(figure))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0.001, 1e5), st.floats(0.001, 1e5)), max_size=12))
def test_any_values_give_axes_that_hold_them(values: list[tuple[float, float]]) -> None:
    rows = [(number, a, b) for number, (a, b) in enumerate(values, start=1)]
    figure = charts.pairs(rows)
    strict(figure)
    low, high = figure["layout"]["yaxis"]["range"]
    assert all(low <= value + 1e-6 and value <= high + 1e-6 for pair in values for value in pair)


def test_ticks_are_round_and_the_last_has_the_unit() -> None:
    assert base.ticks(0, 5.2, 3) == [0, 2, 4, 6]
    assert (base.ticks(0, 5, 2), base.ticks(0, 5, 2, whole=True), base.ticks(0, 1, 2, whole=True)) == (
        [0, 2.5, 5],
        [0, 3, 6],
        [0, 1],
    )
    assert base.tick_words([0, 2.5, 5]) == ["0", "2.5", "5 s"]
    assert base.tick_words([]) == []


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (0.25, "4.0 times sooner"),
        (1.4, "1.4 times later"),
        (1.004, "+0.4 %"),
        (0.985, "−1.5 %"),
        (None, "not measured"),
        (1.0, "0.0 %"),
    ],
)
def test_a_ratio_in_words(ratio: float | None, told: str) -> None:
    assert words.change(ratio) == told


def test_an_interval_is_told_like_its_median() -> None:
    assert words.interval(0.32, 0.30, 0.345) == "2.9 to 3.3"
    assert words.interval(1.004, 0.992, 1.016) == "−0.8 to +1.6 %"
    assert words.interval(0.5, None, None) == ""


@pytest.mark.parametrize(
    ("value", "told"), [(0.17, "0.17"), (4.934, "4.93"), (23.42, "23.4"), (143.2, "143"), (12_345.0, "12,345")]
)
def test_seconds_have_three_digits(value: float, told: str) -> None:
    assert words.seconds(value) == told


@pytest.mark.parametrize(
    ("value", "told"), [(0.04, "40 ms"), (4.93, "4.9 s"), (59.7, "1 min"), (2500, "41 min 40 s"), (7500, "2 h 5 min")]
)
def test_spans_have_their_unit(value: float, told: str) -> None:
    assert words.span(value) == told
