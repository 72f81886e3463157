"""What was kept of the last 30 days as figures over time: one panel a figure, all over the same range.

A step's value holds from its begin to its end; a step in which nobody watched is a gap, never a zero. Times are Unix seconds;
words for them come from `zone`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from dashboard.charts import base, words
from dashboard.charts.base import Figure

MINUTE, HOUR, DAY = 60, 3600, 86_400
STEPS = (
    MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    5 * DAY,
    10 * DAY,
)
WANT = 7
MOST_MARKS = 60  # more lines would hide the figure; the readout still names them

type Point = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    value: Callable[[Point], float | None]
    second: bool = False  # the quieter one of two


@dataclass(frozen=True, slots=True)
class Panel:
    """`anchor`: where docs/metrics.md defines it. `scale` turns values into the unit. `top`: the least upper end of the axis."""

    key: str
    title: str
    unit: str
    anchor: str
    lines: tuple[Line, ...]
    scale: float = 1.0
    places: int = 0
    top: float = 0.0


def _of(name: str) -> Callable[[Point], float | None]:
    return lambda point: point.get(name)


def _inside(name: str, part: str) -> Callable[[Point], float | None]:
    return lambda point: (point.get(name) or {}).get(part)


RATES = "prompt-tokens-a-second-generated-tokens-a-second"


def _one(name: str) -> tuple[Line, ...]:
    return (Line("", _of(name)),)


def _high_and_low(name: str) -> tuple[Line, ...]:
    return (Line("p95", _inside(name, "p95")), Line("p50", _inside(name, "p50"), True))


_QUEUE = (Line("deepest", _of("queue_max")), Line("mean", _of("queue_mean"), True))
_JAIN = (Line("slots", _of("jain_slots")), Line("clients", _of("jain_clients"), True))
COUNTED = ("tasks", "slots")
PANELS = (
    Panel("prompt", "Prompt tokens", "tokens/s", RATES, _one("prompt_tps")),
    Panel("gen", "Generated tokens", "tokens/s", RATES, _one("gen_tps"), places=1),
    Panel("queue", "Queue", "tasks", "queue-depth-oldest", _QUEUE, places=1),
    Panel("stall", "Worst stall", "s", "worst-stall-in-the-history", _one("worst_stall_s"), places=1),
    Panel("ttft", "TTFT", "s", "ttft-and-itl-percentiles", _high_and_low("ttft"), places=2),
    Panel("itl", "ITL", "ms", "ttft-and-itl-percentiles", _high_and_low("itl"), scale=1000.0, places=1),
    Panel("busy", "Busy slots", "slots", "busy", _one("busy"), places=1),
    Panel("kv", "KV cells used, most", "tokens", "kv-used-at-most", _one("kv_used_max")),
    Panel("cache", "Cache hits", "%", "cache-hit", _one("cache_hit"), scale=100.0, top=100.0),
    Panel("jain", "Jain's index", "", "jains-index", _JAIN, places=2, top=1.0),
)


def spaced(t_from: float, t_to: float, zone: ZoneInfo, want: int = WANT) -> list[tuple[float, str]]:
    """Round local times within the range, with their words: dates where a day begins, clock times between."""
    step = next((step for step in STEPS if (t_to - t_from) / step <= want), STEPS[-1])
    begin = datetime.fromtimestamp(t_from, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    found = []
    moment = begin
    while (t := moment.timestamp()) <= t_to:
        if t >= t_from:
            midnight = moment.hour == 0 and moment.minute == 0
            found.append((t, moment.strftime("%-d %b") if midnight else moment.strftime("%H:%M")))
        moment = (moment.replace(tzinfo=None) + timedelta(seconds=step)).replace(tzinfo=zone)
    return found


def steps(points: Sequence[Point], step_s: float, line: Line, scale: float) -> tuple[list[float | None], list[float | None]]:
    """x and y of a stepped line; None between two points where something is missing."""
    x: list[float | None] = []
    y: list[float | None] = []
    for point in points:
        value = line.value(point)
        if value is None or not point.get("observed_s", 1):
            continue
        if x and x[-1] is not None and point["t"] - x[-1] > 1e-6:
            x.append(None)
            y.append(None)
        x += [base.number(point["t"]), base.number(point["t"] + step_s)]
        y += [base.number(value * scale)] * 2
    return x, y


def panel_figure(
    panel: Panel, found: Mapping[str, Any], t_from: float, t_to: float, zone: ZoneInfo, readouts: Sequence[base.Readout]
) -> Figure:
    """`found` is the history object of docs/protocol.md."""
    data: list[dict[str, Any]] = []
    values: list[float] = []
    for line in panel.lines:
        x, y = steps(found["points"], found["step_s"], line, panel.scale)
        values += [value for value in y if value is not None]
        look = {"color": "--series-2" if line.second else "--series", "width": 1.4, "shape": "linear"}
        fill = {} if line.second else {"fill": "tozeroy", "fillcolor": "--series-soft"}
        data.append(
            {"type": "scatter", "mode": "lines", "name": line.name, "x": x, "y": y, "line": look, "hoverinfo": "skip", **fill}
        )
    grid = base.ticks(0.0, max([*values, panel.top]) or 1.0, 2, whole=panel.unit in COUNTED)
    return {
        "data": data,
        "layout": base.layout(
            _time_axis(t_from, t_to, zone, WANT),
            base.axis(0.0, grid[-1] * 1.02, grid, _words(grid)),
            margin={"l": 60, "r": 12, "t": 6, "b": 22, "pad": 0},
            dragmode="zoom",
            shapes=[*_runs(found.get("runs") or [], t_from, t_to), *_marks(found.get("marks") or [])],
        ),
        "narrow": {
            "xaxis": _time_axis(t_from, t_to, zone, 3),
            "margin": {"l": 48, "r": 4, "t": 6, "b": 22, "pad": 0},
        },
        "readouts": list(readouts),
        "alt": _sentence(panel, values),
    }  # fmt: skip


def _time_axis(t_from: float, t_to: float, zone: ZoneInfo, want: int) -> dict[str, Any]:
    times = spaced(t_from, t_to, zone, want)
    return base.axis(t_from, t_to, [t for t, _ in times], [text for _, text in times], fixedrange=False, showline=True)


def _words(grid: Sequence[float]) -> list[str]:
    return [words.whole(value) if value >= 100 or value == int(value) else f"{value:g}" for value in grid]


def _sentence(panel: Panel, values: Sequence[float]) -> str:
    if not values:
        return f"{panel.title}: nothing is known in this time"
    low, high = (_number(value, panel.places) for value in (min(values), max(values)))
    return f"{panel.title}{', ' + panel.unit if panel.unit else ''}: between {low} and {high}"


def _runs(runs: Sequence[Mapping[str, Any]], t_from: float, t_to: float) -> list[dict[str, Any]]:
    return [
        {
            "type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
            "x0": base.number(max(run["from"], t_from)), "x1": base.number(min(run["to"] or t_to, t_to)),
            "fillcolor": "--accent-soft", "line": {"width": 0},
        }
        for run in runs
    ]  # fmt: skip


def _marks(marks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1,
            "x0": base.number(mark["t"]), "x1": base.number(mark["t"]),
            "line": {"color": "--accent", "width": 1, "dash": "dot" if mark["kind"] == "restart" else "solid"},
        }
        for mark in marks[-MOST_MARKS:]
    ]  # fmt: skip


def readouts(found: Mapping[str, Any], zone: ZoneInfo) -> list[base.Readout]:
    """One line of words for each step, the same under every panel."""
    step, marks = found["step_s"], found.get("marks") or []
    told = []
    for point in found["points"]:
        end = point["t"] + step
        inside = [mark for mark in marks if point["t"] <= mark["t"] < end]
        parts = [text for panel in PANELS if (text := _said(panel, point))]
        parts += [f"{mark['text']}{', ' + mark['by'] if mark.get('by') else ''}" for mark in inside]
        text = f"{span_words(point['t'], end, zone)}: {'; '.join(parts) or 'nobody watched'}"
        told.append({"x0": point["t"], "x1": end, "text": text})
    return told


def _said(panel: Panel, point: Point) -> str:
    if not point.get("observed_s", 1):
        return ""
    values = [(line.name, value * panel.scale) for line in panel.lines if (value := line.value(point)) is not None]
    shown = ", ".join(f"{_number(value, panel.places)} {name}".rstrip() for name, value in values)
    proper = panel.title[:2].isupper() or panel.title.startswith("Jain")
    name = panel.title if proper else panel.title[0].lower() + panel.title[1:]
    return f"{name} {shown} {panel.unit}".rstrip() if shown else ""


def _number(value: float, places: int) -> str:
    return words.whole(value) if not places or value >= 100 else f"{value:.{places}f}"


def span_words(t_from: float, t_to: float, zone: ZoneInfo) -> str:
    """30 Nov 14:00 to 15:00; with both dates where they differ."""
    start, end = (datetime.fromtimestamp(t, zone) for t in (t_from, t_to))
    last = "%H:%M" if start.date() == end.date() else "%-d %b %H:%M"
    return f"{start.strftime('%-d %b %H:%M')} to {end.strftime(last)}"
