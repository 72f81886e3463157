"""What all figures share: axes, ticks and the layout they start from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

type Figure = dict[str, Any]
type Readout = dict[str, Any]

SLOT_HUES = 8
AXIS_SIZE = 11


def slot_colour(slot: int, soft: bool = False) -> str:
    return f"--slot-{slot % SLOT_HUES}{'-soft' if soft else ''}"


def number(value: float) -> float:
    """Rounded for the wire: a microsecond of a time axis is below any pixel."""
    return round(value, 6)


def nice_step(spread: float, want: int) -> float:
    """The 1, 2, 2.5 or 5 times a power of ten that parts `spread` into at most `want` steps."""
    if spread <= 0:
        return 1.0
    raw = spread / want
    power = 10.0 ** math.floor(math.log10(raw))
    return power * next((step for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= raw * 0.999999), 10.0)


def ticks(low: float, high: float, want: int = 4, *, whole: bool = False) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`; `whole`: of things that are counted, so no halves."""
    step = nice_step(high - low, want)
    if whole and step % 1:
        step = math.ceil(step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def tick_words(values: Sequence[float], unit: str = "s") -> list[str]:
    """Tick labels; the unit stands on the last one."""
    words = [f"{value:g}" for value in values]
    return [*words[:-1], f"{words[-1]} {unit}"] if words else []


def dot_axis(values: Sequence[float]) -> list[float]:
    """Ticks that hold `values`: from zero, or cut to where the dots are when they lie close together. The ends are the limits."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high <= 0 or high - low > 0.3 * high:
        return ticks(0.0, high if high > 0 else 1.0, 3)
    pad = max((high - low) * 0.15, high * 0.01)
    return ticks(max(0.0, low - 2 * pad), high + pad, 3)  # below the dots stand their labels


def axis(low: float, high: float, values: Sequence[float], words: Sequence[str], **more: Any) -> dict[str, Any]:
    return {
        "range": [number(low), number(high)],
        "tickmode": "array",
        "tickvals": [number(value) for value in values],
        "ticktext": list(words),
        "tickfont": {"size": AXIS_SIZE, "color": "--ink-3"},
        "gridcolor": "--line",
        "linecolor": "--line-2",
        "zeroline": False,
        "showline": False,
        "fixedrange": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "rgba(0,0,0,0)",
        "automargin": False,
        **more,
    }


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that hold both; `low` above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def log_axis(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Of `decades`; Plotly takes the range of a log axis as exponents."""
    made = axis(math.log10(values[0]), math.log10(values[-1]), [], tick_words(values, unit))
    return {**made, "type": "log", "tickvals": list(values)}


def layout(xaxis: dict[str, Any], yaxis: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "xaxis": xaxis,
        "yaxis": yaxis,
        "margin": {"l": 44, "r": 12, "t": 10, "b": 22, "pad": 0},
        "paper_bgcolor": "--bg",
        "plot_bgcolor": "--bg",
        "font": {"size": AXIS_SIZE, "color": "--ink-2"},
        "showlegend": False,
        "hovermode": False,
        "dragmode": False,
        "bargap": 0,
        "annotations": [],
        "shapes": [],
        **more,
    }


def note(x: float, y: float, text: str, **more: Any) -> dict[str, Any]:
    """A word inside a chart."""
    return {
        "x": number(x),
        "y": number(y),
        "text": text,
        "showarrow": False,
        "font": {"size": AXIS_SIZE, "color": "--ink-2"},
        **more,
    }


def slot_square(slot: int, row: int, gutter: int) -> dict[str, Any]:
    """The square in a slot's colour before its name, `gutter` pixels left of the plot, in the middle of a row."""
    return {
        "type": "rect",
        "xref": "paper",
        "yref": "y",
        "xsizemode": "pixel",
        "ysizemode": "pixel",
        "xanchor": 0,
        "yanchor": row,
        "x0": -gutter,
        "x1": -gutter + 10,
        "y0": -5,
        "y1": 5,
        "fillcolor": slot_colour(slot),
        "line": {"width": 0},
    }
