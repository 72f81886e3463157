"""The last minute of a server under a run: how many requests it holds, and under it what its slots do, on one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure
from dashboard.charts.requests import bars, line

SPAN_S = 60.0
LOAD_ROWS = 3  # of a slot's height, for the load above the slots
MOST_SLOTS = 16
GUTTER, NARROW_GUTTER = 104, 44
THICK = 0.6

type Task = Mapping[str, Any]
type Span = tuple[float, float]


def live_load(tasks: Iterable[Task], now: float, n_slots: int, blocks: Sequence[tuple[float, str]] = ()) -> Figure:
    """`tasks` as the detail of a server has them (Unix seconds); `blocks`: when each block of the run began, and its arm."""
    known = [task for task in tasks if task["submitted_at"] is not None]
    rows = min(n_slots, MOST_SLOTS)
    waiting = _counts([(task["submitted_at"] - now, _end(task, "first_visit_at", now)) for task in known])
    held = _counts([(task["submitted_at"] - now, _end(task, "finished_at", now)) for task in known])
    most = max([count for _, count in held], default=0)
    top = max(2.0, float(most))
    share = rows / (rows + LOAD_ROWS) if rows else 0.0
    begun = [(at - now, arm) for at, arm in blocks if -SPAN_S < at - now <= 0]
    return {
        "data": [*_slots(known, now, rows), _steps(held, "at the server", fill=True), _steps(waiting, "not yet visited")],
        "layout": base.layout(
            base.axis(-SPAN_S, 0.0, [-60.0, -45.0, -30.0, -15.0, 0.0], ["\u221260 s", "\u221245", "\u221230", "\u221215", "now"]),
            base.axis(rows - 0.5, -0.5, [], [], showgrid=False, domain=[0.0, max(0.0, share - 0.04)]),
            yaxis2=base.axis(0.0, top * 1.1, [0.0, top], ["0", words.whole(top)], domain=[share + 0.02, 1.0]),
            margin={"l": GUTTER, "r": 16, "t": 4, "b": 20, "pad": 0},
            barmode="overlay",
            shapes=[*(base.slot_square(row, row, GUTTER) for row in range(rows)), *(_begin(at) for at, _ in begun)],
            annotations=[*(_name(row, GUTTER) for row in range(rows)), *(_arm(at, arm) for at, arm in begun)],
        ),
        "narrow": {
            "margin": {"l": NARROW_GUTTER, "r": 4, "t": 4, "b": 20, "pad": 0},
            "shapes": [*(base.slot_square(row, row, NARROW_GUTTER) for row in range(rows)), *(_begin(at) for at, _ in begun)],
            "annotations": [*(_name(row, NARROW_GUTTER) for row in range(rows)), *(_arm(at, arm) for at, arm in begun)],
        },
        "rows": rows + LOAD_ROWS,
        "readouts": _readouts(held, waiting),
        "alt": f"The last 60 seconds: {int(held[-1][1]) if held else 0} requests at the server now, {most} at most",
    }


def _end(task: Task, name: str, now: float) -> float | None:
    """Of a stage, seconds before now; None while it lasts."""
    moment = task.get(name)
    moment = task["finished_at"] if moment is None else moment
    return None if moment is None else moment - now


def _counts(spans: Sequence[tuple[float, float | None]]) -> list[tuple[float, int]]:
    """(moment, how many) at each change, from the range's start to now."""
    changes = [(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans if end is not None]
    count, found = 0, [(-SPAN_S, 0)]
    for at, by in sorted(changes):
        count += by
        found.append((max(-SPAN_S, min(0.0, at)), count))
    return [*found, (0.0, count)]


def _steps(counts: Sequence[tuple[float, int]], name: str, fill: bool = False) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [base.number(at) for at, _ in counts],
        "y": [count for _, count in counts],
        "yaxis": "y2",
        "line": {"shape": "hv", "width": 1.4, "color": "--series" if fill else "--ink-3", "dash": "solid" if fill else "2px,3px"},
        "hoverinfo": "skip",
    }
    return trace | ({"fill": "tozeroy", "fillcolor": "--series-soft"} if fill else {})


def _slots(tasks: Sequence[Task], now: float, rows: int) -> list[dict[str, Any]]:
    found = []
    for slot in range(rows):
        own = [task for task in tasks if task["slot"] == slot]
        stages = (("submitted_at", "first_visit_at"), ("first_visit_at", "first_token_at"), ("first_token_at", "finished_at"))
        waits, prompts, answers = ([span for task in own if (span := _span(task, *stage, now))] for stage in stages)
        edge = {"color": "--bg", "width": 1}
        if prompts:
            found.append(bars(slot, prompts, {"color": base.slot_colour(slot), "line": edge}, "prompt", THICK))
        if answers:
            found.append(bars(slot, answers, {"color": base.slot_colour(slot, soft=True), "line": edge}, "generation", THICK))
        if waits:
            found.append(line(slot, waits, {"color": "--ink-3", "width": 1.4}, "waiting"))
    return found


def _span(task: Task, start: str, end: str, now: float) -> Span | None:
    """A stage of a task inside the range; one that was not reached has none, one that lasts goes on to now."""
    begun = task.get(start)
    if begun is None:
        return None
    until = next((task[name] for name in (end, "finished_at") if task.get(name) is not None), now)
    low, high = max(-SPAN_S, begun - now), min(0.0, until - now)
    return (low, high) if high > low else None


def _readouts(held: Sequence[tuple[float, int]], waiting: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
    """Of each second: the most that were there within it."""
    found = []
    for second in range(-int(SPAN_S), 0):
        text = f"{-second} s ago: {_within(held, second)} requests at the server, {_within(waiting, second)} not yet visited"
        found.append({"x0": second, "x1": second + 1, "text": text})
    return found


def _within(counts: Sequence[tuple[float, int]], second: int) -> int:
    before = [count for at, count in counts if at <= second]
    inside = [count for at, count in counts if second < at < second + 1]
    return max([*(before[-1:] or [0]), *inside])


def _name(row: int, gutter: int) -> dict[str, Any]:
    label = base.note(0, row, f"<b>{row}</b>", xref="paper", xanchor="left", xshift=-gutter + 15, yanchor="middle")
    return {**label, "font": {"size": 12, "color": "--ink-2"}}


def _begin(at: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": base.number(at),
        "x1": base.number(at),
        "y0": 0,
        "y1": 1,
        "line": {"color": "--line-2", "width": 1, "dash": "3px,3px"},
    }


def _arm(at: float, arm: str) -> dict[str, Any]:
    return base.note(at, 1, arm or "calibration", yref="paper", xanchor="left", yanchor="top", xshift=3)
