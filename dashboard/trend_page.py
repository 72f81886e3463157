"""A scenario over time, put together from `workers.selectors.trend`. Pure but for the words of a date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboard import present
from dashboard.badge import primary
from dashboard.charts import words
from dashboard.charts.base import Figure
from dashboard.charts.trend import Point, ratios, trend
from dashboard.measures import STATISTICS, kind_of
from dashboard.results import MARKS, QUIET


@dataclass(frozen=True, slots=True)
class Choice:
    key: str
    name: str


@dataclass(frozen=True, slots=True)
class TrendRow:
    """One run in the table under the charts, newest first."""

    run: int
    at: datetime
    pairs: int
    build: str
    scale: str
    a: str
    b: str
    change: str
    interval: str
    verdict: str
    mark: str
    quiet: bool
    apart: str  # what is another than of the run that is asked about; ""
    shown: bool


def choices(measures: Sequence[Mapping[str, Any]]) -> list[Choice]:
    return [Choice(measure["key"], name_of(measure)) for measure in measures if not measure["who"].startswith("client:")]


def name_of(measure: Mapping[str, Any]) -> str:
    """ "victim: TTFT, mean"."""
    kind, statistic = kind_of(measure), STATISTICS.get(measure["stat"], "")
    who = f"{measure['who']}: " if measure["who"] and measure["label"].startswith(f"{measure['who']}:") else ""
    return f"{who}{kind.name}{f', {statistic}' if statistic else ''}"


def chosen(measures: Sequence[Mapping[str, Any]], wanted: str, limited: Sequence[str]) -> Mapping[str, Any] | None:
    """The one that is asked for, else what the runs are about; None of none. `limited`: streams with limits."""
    by_key = {measure["key"]: measure for measure in measures}
    return by_key.get(wanted) or primary(measures, limited)


def figures(measure: Mapping[str, Any]) -> dict[str, Figure]:
    kind = kind_of(measure)
    points = [_point(point, kind.factor, kind.told) for point in measure["points"]]
    return {"fig-trend": trend(points, kind.unit), "fig-trend-ratio": ratios(points)}


def _point(point: Mapping[str, Any], factor: float, told: tuple[str, str]) -> Point:
    ratio = point["ratio"]
    build = f", {point['build']}" if point["build"] else ""
    return Point(
        run=point["run"],
        said=f"{point['at']:%-d %b %H:%M}{build}",
        a=None if point["a"] is None else point["a"] * factor,
        b=None if point["b"] is None else point["b"] * factor,
        ratio=ratio["median"],
        low=ratio["low"],
        high=ratio["high"],
        change=f"{words.change(ratio['median'], told)}, {point['word']}" if ratio["median"] else point["word"],
        apart=not (point["same_build"] and point["same_scale"]),
        shown=point["shown"],
    )


def rows(measure: Mapping[str, Any]) -> list[TrendRow]:
    kind = kind_of(measure)
    found = []
    for point in reversed(measure["points"]):
        ratio, word = point["ratio"], point["word"]
        apart = [name for name, same in (("build", point["same_build"]), ("scale", point["same_scale"])) if not same]
        found.append(
            TrendRow(
                run=point["run"],
                at=point["at"],
                pairs=point["pairs"],
                build=str(point["build"] or "unknown"),
                scale=f"{point['scale']:.3g}",
                a="none" if point["a"] is None else words.seconds(point["a"] * kind.factor),
                b="none" if point["b"] is None else words.seconds(point["b"] * kind.factor),
                change=words.change(ratio["median"], kind.told) if ratio["median"] else "no ratio",
                interval=words.interval(ratio["median"], ratio["low"], ratio["high"]) or "none yet",
                verdict=word,
                mark=MARKS.get(word, ""),
                quiet=word in QUIET,
                apart=f"another {' and '.join(apart)}" if apart else "",
                shown=point["shown"],
            )
        )
    return found


def says(measure: Mapping[str, Any]) -> str:
    """What the line shows from its first run to its last; "" of one run."""
    points = [point for point in measure["points"] if point["b"]]
    if len(points) < 2:
        return ""
    kind = kind_of(measure)
    first, last = points[0], points[-1]
    moved = words.change(last["b"] / first["b"], kind.told)
    same = sum(point["word"] == last["word"] for point in points)
    low, high = (words.seconds(point["b"] * kind.factor) for point in (first, last))
    went = f"From run {first['run']} to run {last['run']} arm B went from {low} to {high} {kind.unit} ({moved})."
    went = present.unbroken(went)
    return f"{went} The verdict of the last run, {last['word']}, is that of {same} of {len(points)} runs."
