"""What a load looks like before it is sent, and the server's last minute while it is: pure."""

from __future__ import annotations

import pytest

from dashboard.charts.live_load import live_load
from dashboard.charts.planned import BINS, FEW, planned
from workers.load.plan import make_plan
from workers.load.planned import Scaling
from workers.load.preview import Arrival, count_of, preview
from workers.scenarios import library
from workers.scenarios.reading import read
from workers.scenarios.streams import LoadScenario

HEAD = "name: mine\nversion: 1\ntitle: M\nsummary: S\nwritten_for: 1000\nstreams:\n"


def arrival(at_s: float, work_s: float = 0.1, stream: str = "a", sure: bool = True) -> Arrival:
    return Arrival(stream, at_s, sure, work_s, 100, 8)


def shown(text: str, speed: float = 1000.0) -> tuple[list[Arrival], float]:
    found = preview(make_plan(read(HEAD + text), 1, Scaling()), speed)
    return list(found.arrivals), found.lasts_s


def test_a_closed_loop_comes_again_when_its_answer_is_there() -> None:
    """One user, 500 new tokens at 1,000 a second, 10 generated at 8 each: 0.58 s of work, then 0.42 s of thought."""
    arrivals, lasts = shown(
        "  - {name: a, arrivals: {kind: closed, concurrency: 1, requests: 3, think_s: 0.42}, prompt: {tokens: 500}, output: 10}\n"
    )
    assert [each.at_s for each in arrivals] == pytest.approx([0.0, 1.0, 2.0])
    assert [each.sure for each in arrivals] == [True, False, False]
    assert lasts == pytest.approx(2.58)


def test_what_a_cache_holds_is_no_work() -> None:
    """The second turn has its first one before it, and the warm text is there at the start."""
    arrivals, _ = shown(
        "  - {name: a, arrivals: {kind: at, times: [0]}, prompt: {tokens: 100, warm: {tokens: 900}}, output: 4, turns: 2}\n"
    )
    assert [each.prompt for each in arrivals] == [100, 100]


def test_a_loop_that_is_over_sends_no_more() -> None:
    arrivals, _ = shown(
        "  - {name: a, arrivals: {kind: closed, concurrency: 1, requests: 9, for_s: 1}, prompt: {tokens: 500}, output: 1}\n"
    )
    assert len(arrivals) == 2


@pytest.mark.parametrize("name", [name for name in library.names() if name != "warm-behind-cold"])
def test_the_count_is_known_without_planning(name: str) -> None:
    scenario = library.find(name)
    assert isinstance(scenario, LoadScenario)
    planned_count = len(make_plan(scenario, 3, Scaling(), library.files_of(scenario)).requests)
    if "trace" in name:
        assert planned_count <= count_of(scenario)
    else:
        assert planned_count == pytest.approx(count_of(scenario), rel=0.6)


def test_few_requests_are_drawn_each_and_many_are_counted() -> None:
    few = planned([arrival(at) for at in range(FEW)], 50.0, {"a": 3})
    many = planned([arrival(at / 100) for at in range(1000)], 10.0, {"a": None, "b": None})
    assert few.lanes[0].single
    assert (len(few.lanes[0].arrivals), few.lanes[0].slot) == (FEW, 3)
    assert not many.lanes[0].single
    assert len(many.lanes[0].arrivals) <= BINS
    assert max(bar.height for bar in many.lanes[0].arrivals) == 100
    assert many.lanes[1].says == "no request"
    assert many.peak > 1  # a tenth of a second of work, a hundred times a second


@pytest.mark.parametrize(("lasts", "last"), [(0.004, 0.0), (7.0, 3.0), (95.0, 60.0), (7200.0, 7000.0)])
def test_a_drawing_stays_inside_its_width(lasts: float, last: float) -> None:
    found = planned([arrival(0.0), arrival(last, work_s=0.001)], lasts, {"a": 0})
    bars = [bar for lane in found.lanes for bar in (*lane.work, *lane.arrivals)] + list(found.work)
    assert all(0 <= bar.x <= 100 and bar.x + bar.width <= 102 and 0 <= bar.height <= 100 for bar in bars)
    assert all(0 <= at <= 100 for at, _ in found.ticks)
    assert found.ticks[-1][1].endswith(" s")


def test_an_empty_load_is_drawn_as_nothing() -> None:
    found = planned([], 0.0, {"a": None})
    assert found.work == ()
    assert found.peak == 0


def task(slot: int, submitted: float, visit: float | None, first: float | None, done: float | None) -> dict[str, float | None]:
    return {"slot": slot, "submitted_at": submitted, "first_visit_at": visit, "first_token_at": first, "finished_at": done}


def test_the_last_minute_counts_requests_and_shows_their_stages() -> None:
    tasks = [task(0, 950, 951, 955, 960), task(1, 958, 970, None, None), task(-1, 980, None, None, None)]
    figure = live_load(tasks, 1000.0, 2, [(940.5, "A"), (990.0, "B")])
    held = next(trace for trace in figure["data"] if trace["name"] == "at the server")
    assert list(zip(held["x"], held["y"], strict=True))[1:] == [(-50, 1), (-42, 2), (-40, 1), (-20, 2), (0, 2)]
    names = [(trace["name"], trace["y"][0]) for trace in figure["data"] if trace.get("yaxis") != "y2"]
    assert names == [("prompt", 0), ("generation", 0), ("waiting", 0), ("prompt", 1), ("waiting", 1)]
    prompt = figure["data"][3]
    assert (prompt["base"], prompt["x"]) == ([-30], [30])  # still under way: up to now
    assert [note["text"] for note in figure["layout"]["annotations"]][-2:] == ["A", "B"]
    assert figure["readouts"][-1]["text"] == "1 s ago: 2 requests at the server, 1 not yet visited"


def test_a_minute_without_requests_is_an_empty_drawing() -> None:
    figure = live_load([], 1000.0, 4)
    assert figure["alt"].startswith("The last 60 seconds: 0 requests")
    assert figure["rows"] == 7
