"""A run's report: one HTML file that needs no console, no script and no network. Pure but for the run's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import arms, run_conditions, run_page
from dashboard.charts import words
from dashboard.charts.forest import Forest, Mark
from dashboard.measures import STATISTICS, kind_of
from dashboard.results import forest_of
from workers.analysis.numbers import spread
from workers.measure_rows import all_measures
from workers.models import Run
from workers.side_by_side import server_name, version_of

type Json = Mapping[str, Any]

WIDTH = 200.0  # of a drawn interval
STEP, HIGH, MARGIN = 22.0, 90.0, 8.0  # of the drawing of pairs
MOST_DRAWN = 6
TAILS = ("p99", "p95", "max")
WORD_CLASSES = {"faster": "good", "more even": "good", "slower": "bad", "less even": "bad"}
WORD_MARKS = {"good": "▲", "bad": "▼"}
OTHER_MARKS = {"no difference shown": "=", "not enough runs": "?"}


@dataclass(frozen=True, slots=True)
class Line:
    """Drawn in an SVG of WIDTH: the dot, the ends of the interval (None without one), and an arrow where the dot lies beyond."""

    at: float
    low: float | None
    high: float | None
    arrow: str


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    unit: str
    a: str
    b: str
    change: str
    interval: str
    difference: str
    n: int
    mark: str
    word: str
    tone: str
    noise: str
    line: Line | None


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    a: float
    b: float
    pair: int
    told: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """One measure's pairs: A and B of each, joined; y from the top, on one scale from 0."""

    label: str
    top: str
    width: float
    dots: tuple[Dot, ...]


def report_of(run: Run, found: Json) -> dict[str, Any]:
    """The context of `experiments/report.html`; `found` as `workers.selectors.results` gives it."""
    measures = all_measures(dict(found))
    drawn = forest_of(measures, found["noise"])
    floor = drawn.floor
    return {
        "run": run,
        "number": (run.imported or {}).get("run", run.pk),
        "imported": run.imported,
        "server": server_name(run),
        "version": version_of(run),
        "verdict": found["verdict"],
        "arms": found["arms"],
        "title": arms.title(found["arms"]["A"], found["arms"]["B"]),
        "state": run_page.state_of(run).word,
        "noise": found["noise"]["text"] if found["noise"] else "",
        "notes": found["notes"],
        "warnings": found["warnings"],
        "conditions": run_conditions.conditions(run),
        "groups": groups(measures, drawn),
        "unknown": (found.get("fairness") or {}).get("unknown", ""),
        "width": WIDTH,
        "one": drawn.one * WIDTH / 100,
        "band": None if floor is None else (floor.low * WIDTH / 100, floor.width * WIDTH / 100),
        "pairs": [pairs_of(row) for row in drawn_measures(measures)],
        "high": HIGH + 2 * MARGIN,
        "outcomes": outcomes(found.get("outcomes") or {}),
    }


def groups(measures: Sequence[Json], drawn: Forest) -> list[Group]:
    """By stream, by client where it is none of the streams, and the whole block last; fairness beside times and rates."""
    by_who: dict[str, list[Json]] = {}
    for measure in measures:
        by_who.setdefault(measure["who"], []).append(measure)
    kept = [who for who in by_who if not _twin(who, by_who)]
    names = sorted(kept, key=lambda who: (who == "", who.startswith("client:")))
    return [Group(_who(who), tuple(_row(each, drawn.marks.get(each["key"])) for each in by_who[who])) for who in names]


def _twin(who: str, by_who: Mapping[str, Sequence[Json]]) -> bool:
    """Whether a client is one stream under another name, so that its figures would only stand there twice."""
    if not who.startswith("client:"):
        return False
    mine = {(each["metric"], each["stat"]): each["points"] for each in by_who[who]}
    others = (
        {(each["metric"], each["stat"]): each["points"] for each in rows}
        for name, rows in by_who.items()
        if name and not name.startswith("client:")
    )
    return any(all(other.get(key) == points for key, points in mine.items()) for other in others)


def _who(who: str) -> str:
    return who.replace("client:", "Client ", 1) if who.startswith("client:") else f"Stream {who}" if who else "The whole block"


def _row(measure: Json, mark: Mark | None) -> Row:
    kind, ratio, word = kind_of(measure), measure["ratio"], measure["word"]
    stat = f", {STATISTICS.get(measure['stat'], measure['stat'])}" if measure["stat"] else ""
    noise = f"{measure['floor'] * 100:.1f} %" if measure["floor"] is not None else ""
    return Row(
        label=f"{kind.name}{stat}",
        unit=kind.unit,
        a=_spread(measure["a"], kind.factor),
        b=_spread(measure["b"], kind.factor),
        change=words.change(ratio["median"], kind.told),
        interval=words.interval(ratio["median"], ratio["low"], ratio["high"]),
        difference=_difference(measure["difference"], kind.factor),
        n=len(measure["points"]),
        mark=WORD_MARKS.get(WORD_CLASSES.get(word, "")) or OTHER_MARKS.get(word, ""),
        word=word + (", within the noise" if measure["below_floor"] and word in WORD_CLASSES else ""),
        tone="" if measure["below_floor"] else WORD_CLASSES.get(word, ""),
        noise=noise,
        line=_line(mark),
    )


def _line(mark: Mark | None) -> Line | None:
    if mark is None:
        return None
    at, low, high = (None if value is None else round(value * WIDTH / 100, 1) for value in (mark.at, mark.low, mark.high))
    return Line(at or 0.0, low, high, mark.arrow)


def _spread(found: Json, factor: float) -> str:
    if found["median"] is None:
        return "none"
    middle, low, high = (words.seconds(found[name] * factor) for name in ("median", "min", "max"))
    return f"{middle} ({low} to {high})"


def _difference(found: Json, factor: float) -> str:
    if found["value"] is None:
        return ""
    told = words.signed(found["value"] * factor)
    if found["low"] is None:
        return told
    return f"{told} ({words.signed(found['low'] * factor)} to {words.signed(found['high'] * factor)})"


def drawn_measures(measures: Sequence[Json]) -> list[Json]:
    """Those whose pairs are drawn: of each stream the mean TTFT and its tail, or the wall time; then when all was done."""
    found = []
    for who in dict.fromkeys(measure["who"] for measure in measures if measure["who"] and not measure["client"]):
        mine = {(measure["metric"], measure["stat"]): measure for measure in measures if measure["who"] == who}
        tail = next((mine["ttft", stat] for stat in TAILS if ("ttft", stat) in mine), None)
        found += [each for each in (mine.get(("ttft", "mean")), tail, mine.get(("wall", ""))) if each is not None]
    found += [measure for measure in measures if measure["key"] == "makespan"]
    return [measure for measure in found if measure["points"]][:MOST_DRAWN]


def pairs_of(measure: Json) -> Pairs:
    kind, points = kind_of(measure), measure["points"]
    extent = spread([value for _, a, b in points for value in (a, b)])
    top = extent.max if extent and extent.max > 0 else 1.0

    def y(value: float) -> float:
        return round(MARGIN + HIGH * (1 - value / top), 1)

    dots = tuple(
        Dot(
            round(MARGIN + STEP * place, 1),
            y(a),
            y(b),
            pair,
            f"Pair {pair}: A {words.seconds(a * kind.factor)}, B {words.seconds(b * kind.factor)} {kind.unit}".rstrip(),
        )
        for place, (pair, a, b) in enumerate(points)
    )
    return Pairs(
        measure["label"], f"{words.seconds(top * kind.factor)} {kind.unit}".rstrip(), 2 * MARGIN + STEP * len(points), dots
    )


def outcomes(found: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[tuple[str, str, int, int]]:
    """(stream, outcome, A, B)."""
    sides = [side.items() for side in found.values()]
    keys = dict.fromkeys((stream, outcome) for side in sides for stream, counts in side for outcome in counts)

    def count(arm: str, stream: str, outcome: str) -> int:
        return found.get(arm, {}).get(stream, {}).get(outcome, 0)

    return [(stream, outcome, count("A", stream, outcome), count("B", stream, outcome)) for stream, outcome in keys]
