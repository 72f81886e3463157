"""A measure over the runs of a scenario: both arms' medians, and how B compared with A in each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure
from dashboard.charts.requests import line

NAMED = 14  # runs up to which each has its number on the axis
AXIS_ROOM = 0.6


@dataclass(frozen=True, slots=True)
class Point:
    """One run: medians of its arms in the unit shown, the ratio of B to A with its interval, and what is said of it."""

    run: int
    said: str
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    change: str  # in words
    apart: bool  # another build or another scale than the run that is asked about
    shown: bool  # the run that is asked about


def trend(points: Sequence[Point], unit: str) -> Figure:
    """Runs at equal distances, oldest first: what counts is their order, and many may lie in one hour."""
    known = [value for point in points for value in (point.a, point.b) if value is not None]
    grid = base.dot_axis(known)
    return {
        "data": [_arm(points, arm) for arm in ("A", "B")],
        "layout": base.layout(
            _runs_axis(points),
            base.axis(grid[0], grid[-1], grid, base.tick_words(grid, unit)) if known else base.axis(0, 1, [], []),
            shapes=_breaks(points),
        ),
        "narrow": {},
        "readouts": _readouts(points, unit),
        "alt": f"{len(points)} runs, medians of both arms",
    }


def ratios(points: Sequence[Point]) -> Figure:
    """B over A of each run on a logarithm's scale, with its interval."""
    values = [value for point in points for value in (point.low, point.ratio, point.high) if value is not None and value > 0]
    low, high = min([*values, 0.5]), max([*values, 2.0])
    powers = range(max(-10, math.floor(math.log2(low) + 1e-9)), min(10, math.ceil(math.log2(high) - 1e-9)) + 1)
    every = max(1, len(powers) // 4)
    ticks = [2.0**power for power in powers if power % every == 0]
    named = [f"1/{2**-power}" if power < 0 else str(2**power) for power in powers if power % every == 0]
    axis = base.axis(powers[0] * math.log10(2), powers[-1] * math.log10(2), [], named)
    whiskers = [
        {**line(0, [], {"color": "--series", "width": 1.5}, "interval"), "x": _whisker_x(points), "y": _whisker_y(points)}
    ]
    return {
        "data": [*whiskers, _dots(points)],
        "layout": base.layout(
            _runs_axis(points),
            {**axis, "type": "log", "tickvals": ticks},
            shapes=[*_breaks(points), _one()],
        ),
        "narrow": {},
        "readouts": _readouts(points, ""),
        "alt": "; ".join(f"run {point.run}: {point.change}" for point in points),
    }


def _runs_axis(points: Sequence[Point]) -> dict[str, Any]:
    every = max(1, math.ceil(len(points) / NAMED))
    places = [place for place in range(len(points)) if (len(points) - 1 - place) % every == 0]
    numbers = [str(points[place].run) for place in places]
    return base.axis(-AXIS_ROOM, len(points) - 1 + AXIS_ROOM, places, numbers, showgrid=False)


def _arm(points: Sequence[Point], arm: str) -> dict[str, Any]:
    values = [point.a if arm == "A" else point.b for point in points]
    marker: dict[str, Any] = {"size": 8, "color": "--series"}
    if arm == "A":
        marker = {"size": 8, "color": "--bg", "line": {"width": 2, "color": "--series-2"}}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": arm,
        "x": list(range(len(points))),
        "y": [None if value is None else base.number(value) for value in values],
        "line": {"width": 1.4, "color": "--series-2" if arm == "A" else "--series"},
        "marker": marker,
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _dots(points: Sequence[Point]) -> dict[str, Any]:
    known = [(place, point) for place, point in enumerate(points) if point.ratio]
    solid = [point.low is not None for _, point in known]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "B / A",
        "x": [place for place, _ in known],
        "y": [base.number(point.ratio or 1.0) for _, point in known],
        "marker": {
            "size": 8,
            "color": ["--series" if each else "--bg" for each in solid],
            "line": {"width": 1.6, "color": "--series"},
        },
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _whisker_x(points: Sequence[Point]) -> list[float | None]:
    return [x for place, point in enumerate(points) if point.low is not None for x in (place, place, None)]


def _whisker_y(points: Sequence[Point]) -> list[float | None]:
    return [y for point in points if point.low is not None for y in (point.low, point.high, None)]


def _one() -> dict[str, Any]:
    rule = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "layer": "below"}
    return {**rule, "line": {"color": "--line-2", "width": 1}}


def _breaks(points: Sequence[Point]) -> list[dict[str, Any]]:
    """A dashed line wherever the build or the scale changes from one run to the next, and a band behind the run asked about."""
    shapes: list[dict[str, Any]] = []
    half = min(0.4, 0.05 + 0.015 * len(points))
    for place, point in enumerate(points):
        if place and point.apart != points[place - 1].apart:
            rule = {"type": "line", "xref": "x", "yref": "paper", "x0": place - 0.5, "x1": place - 0.5, "y0": 0, "y1": 1}
            shapes.append({**rule, "line": {"color": "--accent", "width": 1, "dash": "4px,3px"}})
        if point.shown:
            band = {"type": "rect", "xref": "x", "yref": "paper", "x0": place - half, "x1": place + half, "y0": 0, "y1": 1}
            shapes.append({**band, "fillcolor": "--accent-soft", "line": {"width": 0}, "layer": "below"})
    return shapes


def _readouts(points: Sequence[Point], unit: str) -> list[dict[str, Any]]:
    found = []
    for place, point in enumerate(points):
        arms = [
            f"{arm} {words.seconds(value)} {unit}".strip() for arm, value in (("A", point.a), ("B", point.b)) if value is not None
        ]
        text = f"Run {point.run}, {point.said}: {', '.join(arms) if unit else ''}{'; ' if unit and arms else ''}{point.change}"
        found.append({"x0": place - 0.5, "x1": place + 0.5, "text": text})
    return found
