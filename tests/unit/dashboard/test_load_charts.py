"""Charts of loads with known answers: rows of requests, levels, searches, trends, distributions of many values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard import charts
from dashboard.charts import words
from dashboard.charts.requests import MOST_ROWS, request_rows
from dashboard.charts.trend import Point, ratios, trend


def strict(figure: dict[str, Any]) -> str:
    return json.dumps(figure, allow_nan=False)


def texts(figure: dict[str, Any]) -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"]]


def request(role: str, sent: float, done: float | None, **more: Any) -> dict[str, Any]:
    first = None if done is None else (sent + done) / 2
    return {
        "role": role,
        "slot": None,
        "sent_at": sent,
        "first_visit_at": sent + 0.1,
        "first_token_at": first,
        "done_at": done,
    } | more


# -- distributions of many values


def test_a_line_through_thousands_of_values_keeps_its_ends_and_its_heights() -> None:
    figure = charts.distribution([number / 1000 for number in range(1, 10_001)], [5.0])
    steps = figure["data"][0]
    assert len(steps["x"]) < 260
    assert (steps["x"][1], steps["x"][-2]) == (0.001, 10.0)
    heights = dict(zip(steps["x"][1:-1], steps["y"][1:-1], strict=True))
    assert all(height == pytest.approx(10 * x) for x, height in heights.items())
    assert len(figure["readouts"]) <= 160


def test_a_readout_counts_what_is_done_at_its_left_end() -> None:
    readouts = charts.distribution([1.0, 2.0, 2.0, 4.0], [3.0], "ms", "gap")["readouts"]
    assert [each["text"] for each in readouts][2] == "From 2.00 to 3.00 ms: A 3 of 4, B 0 of 1 done"


def test_two_runs_stand_in_place_of_the_arms() -> None:
    figure = charts.distribution([1.0], [9.0], names=("run 4", "run 7"))
    assert texts(figure) == ["run 4 1.00 s", "run 7 9.00 s"]
    assert figure["readouts"][-1]["text"] == "From 9.00 to 10.0 s: run 4 1 of 1, run 7 1 of 1 done"


# -- a slot with several requests, and requests without a slot


def test_a_slot_with_several_requests_has_ticks_and_one_word() -> None:
    requests = [request("victim", start, start + 1.0, slot=3) for start in (10.0, 12.0, 14.0)]
    block = {"iterations": [], "requests": requests}
    figure = charts.timeline(block, charts.timeline_range([block]))
    done = next(trace for trace in figure["data"] if trace["name"] == "done")
    assert done["x"] == [1.0, 3.0]
    assert texts(figure).count("done") == 1
    assert "<b>3</b>  victim" in texts(figure)


def test_a_slot_of_several_streams_says_so() -> None:
    requests = [request(role, start, start + 1.0, slot=0) for role, start in (("chat", 0.0), ("document", 2.0))]
    block = {"iterations": [], "requests": requests}
    assert "<b>0</b>  several" in texts(charts.timeline(block, charts.timeline_range([block])))


def test_a_wait_behind_an_earlier_request_of_the_same_slot_is_queued() -> None:
    """The second one is sent while the slot generates for the first: its queue ends where its own prompt begins."""
    iterations = [
        {"i": 1, "t": 0.0, "run_ms": 1000.0, "prompt": [[0, 100]], "gen": []},
        {"i": 2, "t": 1.0, "run_ms": 1000.0, "prompt": [], "gen": [[0, 1]]},
        {"i": 3, "t": 2.0, "run_ms": 500.0, "prompt": [[0, 50]], "gen": []},
    ]
    requests = [
        request("a", 0.0, 2.0, slot=0, first_visit_at=0.0),
        request("a", 1.2, 2.5, slot=0, first_visit_at=2.0),
    ]
    block = {"iterations": iterations, "requests": requests}
    queued = next(trace for trace in charts.timeline(block, (-0.1, 3.0))["data"] if trace["name"] == "queued")
    assert queued["x"] == [1.2, 2.0, None]


def test_requests_without_a_slot_have_rows_of_their_own_where_they_overlap() -> None:
    rows = request_rows([request("chat", 0.0, 2.0), request("chat", 1.0, 3.0), request("chat", 2.5, 4.0)], 0.0, 5.0)
    assert [row.name for row in rows] == ["chat", ""]
    assert [span[0] for span in rows[0].before] == [0.0, 2.5]
    assert rows[1].answer == [(2.0, 3.0)]


def test_more_requests_at_once_than_there_are_rows_are_counted() -> None:
    rows = request_rows([request("chat", 0.01 * number, 9.0) for number in range(MOST_ROWS + 5)], 0.0, 10.0)
    assert len(rows) == MOST_ROWS
    assert rows[-1].more == 5


def test_a_request_that_failed_is_crossed_where_it_ended() -> None:
    block = {"iterations": [], "requests": [request("chat", 0.0, None, outcome="timeout"), request("chat", 1.0, 2.0)]}
    figure = charts.timeline(block, charts.timeline_range([block]))
    failed = [trace for trace in figure["data"] if trace["name"] == "failed"]
    assert len(failed) == 1
    assert failed[0]["marker"]["color"] == "--bad"
    strict(figure)


def test_a_request_whose_client_left_ends_at_the_last_that_is_known_of_it() -> None:
    rows = request_rows(
        [request("chat", 1.0, None, outcome="cancelled", first_token_at=1.5), request("chat", 2.0, 3.0)], 0.0, 9.0
    )
    assert len(rows) == 1
    assert (rows[0].left, rows[0].failed, rows[0].answer) == ([1.5], [], [(2.5, 3.0)])


# -- levels and searches


def test_levels_far_apart_have_a_log_axis_and_a_gap_where_nothing_was_answered() -> None:
    figure = charts.levels(["1 user", "2 users", "4 users"], {"A": [(0, 0.1), (1, 9.0), (2, None)], "B": [(0, 0.1), (1, 0.2)]})
    assert figure["layout"]["yaxis"]["type"] == "log"
    assert figure["layout"]["yaxis"]["tickvals"] == [0.1, 1.0, 10.0]
    assert figure["data"][0]["y"] == [0.1, 9.0, None]
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "4"]
    assert figure["readouts"][2]["text"] == "4 users: A nothing answered, B nothing answered"


def test_a_search_shows_what_was_carried_and_its_bracket() -> None:
    tries = [{"rate_per_s": rate, "requests": 20, "good": 20, "carried": rate < 4} for rate in (1.0, 2.0, 4.0)]
    found = {"tries": tries, "low_per_s": 2.0, "high_per_s": 4.0}
    figure = charts.search({"A": [found], "B": []})
    named = {trace["name"]: trace["x"] for trace in figure["data"]}
    assert named == {"bracket": [2.0, 4.0, None], "carried": [1.0, 2.0], "not carried": [4.0]}
    assert figure["alt"] == "A, search 1: 2.0 a second carried, 4.0 not"
    strict(figure)


# -- trends


def point(run: int, ratio: float | None = 0.5, **more: Any) -> Point:
    given: dict[str, Any] = {"said": "30 Nov", "a": 2.0, "b": 1.0, "low": 0.4, "high": 0.6, "change": "2.0 times sooner, faster"}
    return Point(**{"run": run, "ratio": ratio, "apart": False, "shown": False, **given, **more})


def test_a_trend_marks_the_run_asked_about_and_where_the_build_changed() -> None:
    figure = trend([point(1, apart=True), point(2), point(3, shown=True)], "s")
    kinds = [(shape["type"], shape["x0"]) for shape in figure["layout"]["shapes"]]
    assert kinds[0] == ("line", 0.5)
    assert kinds[1][0] == "rect"
    assert [trace["y"] for trace in figure["data"]] == [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]]
    assert figure["readouts"][0]["text"] == "Run 1, 30 Nov: A 2.00 s, B 1.00 s; 2.0 times sooner, faster"


def test_a_ratio_without_interval_is_hollow_and_one_that_is_unknown_is_not_drawn() -> None:
    figure = ratios([point(1), point(2, low=None, high=None), point(3, None, low=None, high=None)])
    whiskers, dots = figure["data"]
    assert whiskers["y"] == [0.4, 0.6, None]
    assert dots["x"] == [0, 1]
    assert dots["marker"]["color"] == ["--series", "--bg"]
    strict(figure)


@pytest.mark.parametrize("count", [0, 1, 40])
def test_any_number_of_runs_is_a_chart(count: int) -> None:
    points = [point(number, apart=number < 5) for number in range(count)]
    for figure in (trend(points, "s"), ratios(points)):
        strict(figure)
        assert len(figure["layout"]["xaxis"]["ticktext"]) <= 14


# -- words


@pytest.mark.parametrize(
    ("value", "told"), [(1.094, "+1.09"), (-0.0042, "−0.0042"), (0.00001, "0"), (0.0, "0"), (-12_345.0, "−12,345")]
)
def test_a_difference_has_its_sign(value: float, told: str) -> None:
    assert words.signed(value) == told


def test_more_of_a_rate_is_not_later() -> None:
    assert words.change(1.4, words.RATE) == "1.4 times as many"
    assert words.change(0.5, words.RATE) == "2.0 times fewer"
