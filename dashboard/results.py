"""What the page of a run shows, put together from `workers.selectors.results`. No ORM: everything comes in as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import charts
from dashboard.charts import words
from dashboard.charts.base import Figure
from dashboard.charts.forest import Forest, Mark
from dashboard.charts.pairs import Row, rows_of
from workers.analysis.paired import Ratio, Verdict

# key of a measure -> what a run is about ("primary"), or what it must not harm ("guard")
ROLES = {"short_wall": "primary", "cold_wall": "guard", "makespan": "guard"}
VERDICT_MARKS = {"shown": "ok", "no difference shown": "", "too few pairs": "info"}


@dataclass(frozen=True, slots=True)
class Value:
    """One arm's figure: the median and, for the hover, its range and n."""

    text: str
    title: str


@dataclass(frozen=True, slots=True)
class MeasureRow:
    label: str
    role: str
    unit: str
    a: Value
    b: Value
    change: str
    interval: str
    n: int
    verdict: str
    mark: str
    dot: Mark | None


def measure_rows(measures: Sequence[Mapping[str, Any]], drawn: Forest) -> list[MeasureRow]:
    return [_measure_row(measure, drawn.marks.get(measure["key"])) for measure in measures]


def _measure_row(measure: Mapping[str, Any], dot: Mark | None) -> MeasureRow:
    ratio = measure["ratio"] or {"median": None, "low": None, "high": None, "n": 0}
    n = ratio["n"]
    return MeasureRow(
        label=measure["label"],
        role=ROLES.get(measure["key"], ""),
        unit=measure["unit"],
        a=_value(measure["a"], measure["unit"], n),
        b=_value(measure["b"], measure["unit"], n),
        change=words.change(ratio["median"]),
        interval=words.interval(ratio["median"], ratio["low"], ratio["high"]) or "none yet",
        n=n,
        verdict=measure["verdict"],
        mark=VERDICT_MARKS.get(measure["verdict"], ""),
        dot=dot,
    )


def _value(spread: Mapping[str, Any] | None, unit: str, n: int) -> Value:
    if spread is None or spread["median"] is None:
        return Value("none yet", "no pair is done")
    low, high = words.seconds(spread["min"]), words.seconds(spread["max"])
    return Value(words.seconds(spread["median"]), f"{low} to {high} {unit}, {n} pair{'s' if n != 1 else ''}")


def wall_rows(pairs: Sequence[dict[str, Any]], role: str) -> list[Row]:
    return rows_of(pairs, role, "wall_s")


def pair_figures(pairs: Sequence[dict[str, Any]], planned: int) -> dict[str, Figure]:
    """For each role its pairs and its distribution, by the id of the script element that carries the figure."""
    figures = {}
    for role in ("short", "cold"):
        rows = wall_rows(pairs, role)
        figures[f"fig-{role}-pairs"] = charts.pairs(rows, planned)
        a, b = ([row[column] for row in rows if row[column] is not None] for column in (1, 2))
        figures[f"fig-{role}-dist"] = charts.distribution([value for value in a if value], [value for value in b if value])
    return figures


def timeline_figures(timelines: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    over = charts.timeline_range(timelines.values())
    return {f"fig-timeline-{arm.lower()}": charts.timeline(block, over) for arm, block in timelines.items()}


def forest_of(measures: Sequence[Mapping[str, Any]], noise: Mapping[str, Any] | None) -> Forest:
    floor = None
    if noise and noise.get("difference"):
        spread = 1.0 + float(noise["difference"])
        floor = (1.0 / spread, spread)
    return charts.forest([measure for measure in measures if measure["ratio"]], floor)


def short_verdict(ratio: Ratio | None) -> str:
    """For a list of runs: "short 3.1 times sooner (2.9 to 3.3, 8 pairs)"."""
    if ratio is None:
        return ""
    pairs = f"{ratio.n} pair{'s' if ratio.n != 1 else ''}"
    told = f"short {words.change(ratio.median)}"
    between = words.interval(ratio.median, ratio.low, ratio.high)
    if not between:
        return f"{told} ({pairs}, too few for an interval)"
    return f"{told} ({between}, {pairs})" if ratio.verdict is Verdict.SHOWN else f"{told} ({between}, {pairs}): {ratio.verdict}"


def arm_sentence(block: Mapping[str, Any]) -> str:
    """Over an arm's timeline: "short done after 23.4 s, cold after 25.4 s"."""
    told = []
    for role in ("short", "cold"):
        for request in block.get("requests") or []:
            if request["role"] == role:
                done = request.get("done_at")
                told.append(f"{role} done after {words.seconds(done - request['sent_at'])} s" if done else f"{role} not done")
    return ", ".join(told)
