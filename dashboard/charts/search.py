"""Searches for the highest rate that a server carries: one row for each search, a mark for each rate that was tried."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure
from dashboard.charts.requests import line

NAMED = 16  # rows up to which each is named


def search(searches: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """`searches`: by arm, of each block in order, {tries: [{rate_per_s, requests, good, carried}], low_per_s, high_per_s}."""
    rows = [(arm, number, found) for arm in ("A", "B") for number, found in enumerate(searches.get(arm, ()), start=1)]
    tried = [each["rate_per_s"] for _, _, found in rows for each in found["tries"] if each["rate_per_s"] > 0]
    low, high = (min(tried), max(tried)) if tried else (1.0, 10.0)
    grid = _rates(low, high)
    height = len(rows)
    labels = [f"{arm} {number}" if height <= NAMED or number == 1 else "" for arm, number, _ in rows]
    return {
        "data": [trace for place, (arm, _, found) in enumerate(rows) for trace in _traces(place, arm, found)],
        "layout": base.layout(
            {
                **base.axis(math.log10(low * 0.9), math.log10(high * 1.1), [], base.tick_words(grid, "1/s")),
                "type": "log",
                "tickvals": grid,
            },
            base.axis(height - 0.5, -0.5, list(range(height)), labels, showgrid=False),
        ),
        "narrow": {},
        "rows": max(height, 1),
        "readouts": [],
        "alt": "; ".join(_sentence(arm, number, found) for arm, number, found in rows) or "No search is complete",
    }


def _rates(low: float, high: float) -> list[float]:
    """Powers of two over a wide range, since a search doubles and halves; round numbers over a narrow one."""
    if high > 6 * low:
        return [2.0**power for power in range(math.ceil(math.log2(low * 0.9)), math.floor(math.log2(high * 1.1)) + 1)]
    return [tick for tick in base.ticks(low, high, 5) if tick > 0]


def _traces(place: int, arm: str, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    colour = "--series-2" if arm == "A" else "--series"
    ends = (found["low_per_s"], found["high_per_s"])
    traces = []
    if ends[0] is not None and ends[1] is not None:
        traces.append(line(place, [ends], {"color": colour, "width": 5}, "bracket"))
    for carried, symbol in ((True, "circle"), (False, "x-thin")):
        rates = [each["rate_per_s"] for each in found["tries"] if bool(each["carried"]) is carried]
        marker = {"symbol": symbol, "size": 9, "color": colour, "line": {"color": colour, "width": 0 if carried else 2}}
        if rates:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": "carried" if carried else "not carried",
                    "x": [base.number(rate) for rate in rates],
                    "y": [place] * len(rates),
                    "marker": marker,
                    "hoverinfo": "skip",
                }
            )
    return traces


def _sentence(arm: str, number: int, found: Mapping[str, Any]) -> str:
    low, high = found["low_per_s"], found["high_per_s"]
    if low is None:
        return f"{arm}, search {number}: no rate carried"
    told = f"{arm}, search {number}: {words.factor(low)} a second carried"
    return f"{told}, {words.factor(high)} not" if high is not None else f"{told}, the highest that was tried"
