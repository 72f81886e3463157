"""Charts as plain data: figures for Plotly and geometry for the drawings that templates make as SVG. No I/O, no clock.

A figure is strict JSON: `data` and `layout` for Plotly, `readouts` (what the line under the chart says over which range of x),
`narrow` (replaces parts of the layout on a phone) and `alt`. Colours are names of CSS variables, such as "--slot-0": the page
puts in the values of the theme in force.
"""

from __future__ import annotations

from dashboard.charts.distribution import distribution
from dashboard.charts.forest import Forest, forest
from dashboard.charts.levels import levels
from dashboard.charts.load import LoadDrawing, planned_load
from dashboard.charts.pairs import LABELLED, pairs
from dashboard.charts.search import search
from dashboard.charts.timeline import timeline, timeline_range

__all__ = [
    "LABELLED",
    "Forest",
    "LoadDrawing",
    "distribution",
    "forest",
    "levels",
    "pairs",
    "planned_load",
    "search",
    "timeline",
    "timeline_range",
]
