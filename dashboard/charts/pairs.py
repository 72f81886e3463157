"""The pairs of a run: a hollow dot for A, a solid one for B, joined, one pair beside the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard.charts import base, words
from dashboard.charts.base import Figure

LABELLED = 12  # with more pairs the words beside the dots would run into each other
THINNED = 16

type Row = tuple[int, float | None, float | None]


def rows_of(results_pairs: Sequence[dict[str, Any]], role: str, field: str) -> list[Row]:
    """(pair, A, B) of one figure, in order; None where an arm has no value."""
    return [(pair["pair"], _value(pair, "A", role, field), _value(pair, "B", role, field)) for pair in results_pairs]


def _value(pair: dict[str, Any], arm: str, role: str, field: str) -> float | None:
    block = pair.get(arm) or {}
    part = block if role == "block" else block.get(role) or {}
    value = part.get(field)
    return float(value) if value is not None else None


def pairs(rows: Sequence[Row], planned: int = 0, as_percent: bool = False, unit: str = "s") -> Figure:
    """Beside each pair stands how many times sooner B was or, `as_percent`, the change, for what should stay as it is.

    `planned` pairs keep their place on the axis from the start, so that dots do not move while a run goes on.
    """
    known = [value for _, a, b in rows for value in (a, b) if value is not None]
    grid = base.dot_axis(known)
    low, high = grid[0], grid[-1]
    last = max([planned, *(number for number, _, _ in rows), 1])
    every = 1 if last <= THINNED else 5
    shown = [number for number in range(1, last + 1) if number == 1 or number % every == 0]
    dot = 9 if last <= 20 else 7
    offset = min(0.2, 0.02 * last)  # a few pixels to either side, however many pairs share the width
    notes = _labels(rows, high - low, as_percent) if last <= LABELLED else []
    if not known:
        notes = [base.note((last + 1) / 2, 0.5, "no pair is done yet")]
    return {
        "data": [_joined(rows, offset), _dots(rows, "A", dot, offset), _dots(rows, "B", dot, offset)],
        "layout": base.layout(
            base.axis(0.5, last + 0.5, shown, [str(number) for number in shown], showgrid=False, showline=low == 0),
            base.axis(low, high, grid, base.tick_words(grid, unit)) if known else base.axis(0, 1, [], []),
            annotations=notes,
        ),
        "narrow": {"annotations": [] if known else notes},
        "readouts": [_readout(row, unit) for row in rows],
        "alt": f"{len(rows)} pairs, A and B side by side" if rows else "No pair is done yet",
    }


def _joined(rows: Sequence[Row], offset: float) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for number, a, b in rows:
        if a is not None and b is not None:
            x += [number - offset, number + offset, None]
            y += [base.number(a), base.number(b), None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": "--series-2", "width": 1.2},
        "hoverinfo": "skip",
    }


def _dots(rows: Sequence[Row], arm: str, size: int, offset: float) -> dict[str, Any]:
    side, column = (-offset, 1) if arm == "A" else (offset, 2)
    points = [(row[0] + side, row[column]) for row in rows if row[column] is not None]
    marker: dict[str, Any] = {"size": size, "color": "--series"}
    if arm == "A":
        marker = {"size": size, "color": "--bg", "line": {"width": 2, "color": "--series-2"}}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": arm,
        "x": [x for x, _ in points],
        "y": [base.number(y) for _, y in points if y is not None],
        "marker": marker,
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _labels(rows: Sequence[Row], height: float, as_percent: bool) -> list[dict[str, Any]]:
    """Times beside a long line; per cent, which are wider, under the lower dot."""
    labels = []
    for number, a, b in rows:
        if a is None or b is None or a <= 0 or b <= 0:
            continue
        text = words.percent(b / a) if as_percent else words.change(b / a).replace(" times sooner", "").replace(" times", "")
        if abs(a - b) > 0.3 * height and not text.endswith("%"):
            labels.append(base.note(number, (a + b) / 2, text, xanchor="left", xshift=6, yanchor="middle"))
        else:
            labels.append(base.note(number, min(a, b), text, xanchor="center", yanchor="top", yshift=-5))
    return labels


def _readout(row: Row, unit: str) -> dict[str, Any]:
    number, a, b = row
    if a is None or b is None:
        missing = " and ".join(arm for arm, value in (("A", a), ("B", b)) if value is None)
        text = f"Pair {number}: no value of {missing}, so it counts nowhere"
    else:
        told = f": {words.change(b / a)}" if a > 0 and b > 0 else ""
        text = f"Pair {number}: A {words.seconds(a)} {unit}, B {words.seconds(b)} {unit}{told}"
    return {"x0": number - 0.5, "x1": number + 0.5, "text": text}
