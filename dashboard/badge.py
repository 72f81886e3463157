"""A run's verdict as a small picture for a README or a dashboard. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.charts import words
from dashboard.measures import STATISTICS, kind_of

CHARACTER = 6.2  # px of the face's mean letter at 11 px
PAD = 8
COLOURS = {
    **{"faster": "#00785a", "more even": "#00785a", "slower": "#b0241c", "less even": "#b0241c"},
    **{"failed": "#b0241c", "lost": "#7d4c00", "stopped": "#5f636e", "running": "#4a43b3"},
}
GREY = "#5f636e"


def primary(measures: Sequence[Mapping[str, Any]], limited: Sequence[str]) -> Mapping[str, Any] | None:
    """What a run is about: the short request's E2E, the rate carried, else mean TTFT of the first stream with limits (of all
    where none has), else its first measure. None of none.
    """
    by_key = {measure["key"]: measure for measure in measures}
    if "short_wall" in by_key:
        return by_key["short_wall"]
    capacity = next((measure for measure in measures if measure["metric"] == "capacity"), None)
    told = next((by_key[key] for name in limited if (key := f"{name}.ttft_mean") in by_key), None)
    usual = next((measure for measure in measures if measure["key"].endswith(".ttft_mean")), None)
    return capacity or told or usual or next(iter(measures), None)


def told(measure: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Name, verdict with its amount, and colour."""
    if measure is None:
        return "experiment", "no result", GREY
    kind, statistic, word = kind_of(measure), STATISTICS.get(measure["stat"], ""), str(measure["word"])
    who = f"{measure['who']} " if measure["who"] and measure["label"].startswith(f"{measure['who']}:") else ""
    name = f"{who}{kind.name}{f' {statistic}' if statistic else ''}"
    amount = words.change(measure["ratio"]["median"], kind.told) if measure["ratio"]["median"] else ""
    text = f"{word}: {amount}" if word in COLOURS and amount else word
    return name, text, COLOURS.get(word, GREY)


def width_of(text: str) -> int:
    return round(len(text) * CHARACTER) + 2 * PAD
