"""Times over the levels of a sweep: one line for each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure

STEEP = 20.0  # from this factor between the largest and the smallest on the axis is a logarithm's


def levels(names: Sequence[str], points: Mapping[str, Sequence[tuple[int, float | None]]], unit: str = "s") -> Figure:
    """`points`: by arm (place of the level, value); None where nothing was answered, which leaves a gap."""
    known = [value for each in points.values() for _, value in each if value is not None and value > 0]
    steep = bool(known) and max(known) / min(known) > STEEP
    grid = base.decades(min(known), max(known)) if steep else base.ticks(0.0, max(known, default=1.0) * 1.05, 3)
    yaxis = (
        base.log_axis(grid, unit) if steep else base.axis(grid[0], grid[-1], grid, base.tick_words(grid, unit), showline=False)
    )
    places = list(range(len(names)))
    shown = [next((word for word in name.split() if word[:1].isdigit()), name) for name in names]
    if names and names[-1].endswith("/s"):
        shown[-1] += "/s"
    return {
        "data": [_line(arm, each) for arm, each in points.items()],
        "layout": base.layout(base.axis(-0.4, len(names) - 0.6, places, shown, showgrid=False, showline=not steep), yaxis),
        "narrow": {},
        "readouts": [_readout(place, name, points, unit) for place, name in enumerate(names)],
        "alt": f"{len(names)} levels, A and B",
    }


def _line(arm: str, points: Sequence[tuple[int, float | None]]) -> dict[str, Any]:
    marker: dict[str, Any] = {"size": 9, "color": "--series"}
    if arm == "A":
        marker = {"size": 9, "color": "--bg", "line": {"width": 2, "color": "--series-2"}}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": arm,
        "x": [place for place, _ in points],
        "y": [None if value is None else base.number(value) for _, value in points],
        "line": {"width": 1.6, "color": "--series-2" if arm == "A" else "--series"},
        "marker": marker,
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _readout(place: int, name: str, points: Mapping[str, Sequence[tuple[int, float | None]]], unit: str) -> dict[str, Any]:
    told = []
    for arm, each in points.items():
        value = dict(each).get(place)
        told.append(f"{arm} {words.seconds(value)} {unit}" if value is not None else f"{arm} nothing answered")
    return {"x0": place - 0.5, "x1": place + 0.5, "text": f"{name}: {', '.join(told)}"}
