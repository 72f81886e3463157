"""How many of an arm's requests were done within x seconds: one step line for each arm."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure

P95_FROM = 20  # below this many requests a 95th percentile is the slowest one by another name
MOST_STEPS = 240  # of a line: with more values it goes through this many of them, which no pixel tells apart
MOST_READOUTS = 160


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of ascending values, by linear interpolation between the two neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def distribution(
    a: Sequence[float], b: Sequence[float], unit: str = "s", what: str = "request", names: tuple[str, str] = ("A", "B")
) -> Figure:
    """`a` and `b` in `unit`; `what` is counted, in the singular; `names` in place of the arms'."""
    arms = {"A": sorted(a), "B": sorted(b)}
    high = max([*arms["A"], *arms["B"], 0.0])
    grid = base.ticks(0.0, high * 1.02 or 1.0, 5)
    end = grid[-1]
    large = min(len(arms["A"]), len(arms["B"])) >= P95_FROM
    shares = [0.5, 0.95] if large else [0.5]
    data: list[dict[str, Any]] = []
    for arm, values in arms.items():
        if values:
            data += [_steps(arm, values, end), _marks(arm, values, shares)]
    y_ticks, y_words = ([0, 50, 95], ["0", "50", "95 %"]) if large else ([0, 50, 100], ["0", "50", "100 %"])
    return {
        "data": data,
        "layout": base.layout(
            base.axis(0.0, end, grid, base.tick_words(grid, unit), showline=True),
            base.axis(0.0, 104.0, y_ticks, y_words),
            annotations=[label for share in shares for label in _labels(_named(arms, names), share, end, unit)],
        ),
        "narrow": {},
        "readouts": _readouts(_named(arms, names), end, unit),
        "alt": "; ".join(f"{arm}: {_sentence(values, unit, what)}" for arm, values in _named(arms, names).items()),
    }


def _named(arms: dict[str, list[float]], names: tuple[str, str]) -> dict[str, list[float]]:
    return dict(zip(names, arms.values(), strict=True))


def _sentence(values: Sequence[float], unit: str, what: str) -> str:
    if not values:
        return f"no {what} is done"
    return f"half of {words.whole(len(values))} {what}s done within {words.seconds(percentile(values, 0.5))} {unit}"


def _steps(arm: str, values: Sequence[float], end: float) -> dict[str, Any]:
    n = len(values)
    taken = _taken(n, MOST_STEPS)
    x = [0.0, *(base.number(values[index]) for index in taken), end]
    y = [0.0, *(round(100 * (index + 1) / n, 3) for index in taken), 100.0]
    line = {"shape": "hv", "width": 1.8, "color": "--series-2" if arm == "A" else "--series"}
    return {"type": "scatter", "mode": "lines", "name": arm, "x": x, "y": y, "line": line, "hoverinfo": "skip"}


def _taken(n: int, most: int) -> list[int]:
    """Places of at most `most` of `n` ordered values, evenly over them, the first and the last among them."""
    if n <= most:
        return list(range(n))
    return sorted({round(step * (n - 1) / (most - 1)) for step in range(most)})


def _marks(arm: str, values: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    marker: dict[str, Any] = {"size": 7, "color": "--series"}
    if arm == "A":
        marker = {"size": 7, "color": "--bg", "line": {"width": 2, "color": "--series-2"}}
    x = [base.number(percentile(values, share)) for share in shares]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": [share * 100 for share in shares],
        "marker": marker,
        "hoverinfo": "skip",
    }


def _labels(arms: dict[str, list[float]], share: float, end: float, unit: str) -> list[dict[str, Any]]:
    """A label at each arm's percentile, turned away from the other arm; one label for both when they lie together."""
    at = {arm: percentile(values, share) for arm, values in arms.items() if values}
    head = "p95 " if share == 0.95 else ""
    if len(at) == 2 and max(at.values()) - min(at.values()) < 0.16 * end:
        text = head + ", ".join(f"{arm} {words.seconds(value)} {unit}" for arm, value in at.items())
        left = min(at.values()) > 0.45 * end
        return [_label(min(at.values()) if left else max(at.values()), share, text, left)]
    return [_label(value, share, f"{head}{arm} {words.seconds(value)} {unit}", value > 0.55 * end) for arm, value in at.items()]


def _label(x: float, share: float, text: str, left: bool) -> dict[str, Any]:
    down = 9 if share > 0.9 and not left else 0  # to the right of a line its top is free below, to the left above
    return base.note(
        x,
        share * 100,
        text,
        xanchor="right" if left else "left",
        xshift=-8 if left else 8,
        yanchor="middle",
        yshift=-down,
        bgcolor="--bg",
    )


def _readouts(arms: dict[str, list[float]], end: float, unit: str) -> list[dict[str, Any]]:
    every = sorted({0.0, *(value for values in arms.values() for value in values)})
    edges = [every[index] for index in _taken(len(every), MOST_READOUTS)]
    readouts = []
    for edge, after in pairwise([*edges, end]):
        parts = [f"{arm} {bisect_right(values, edge)} of {len(values)}" for arm, values in arms.items() if values]
        told = f"From {words.seconds(edge)} to {words.seconds(after)} {unit}"
        readouts.append({"x0": base.number(edge), "x1": base.number(after), "text": f"{told}: {', '.join(parts)} done"})
    return readouts if any(arms.values()) else []
