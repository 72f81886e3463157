"""What the page of a run of streams shows beside what all runs have: measures by stream, charts, levels, outcomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import charts
from dashboard.charts import words
from dashboard.charts.base import Figure
from dashboard.charts.forest import Forest
from dashboard.measures import DRAWN, KINDS
from dashboard.results import MeasureRow, measure_row
from dashboard.stream_words import limit_words, stage_words, stream_words
from workers.analysis.naming import CLIENT
from workers.analysis.numbers import median
from workers.scenarios.streams import LoadScenario, Stream

OPEN_STREAMS = 4  # with more of them the others are folded, each with its headline
STATISTIC_ORDER = ("", "mean", "p50", "p95", "p99", "max")
MEASURE_ORDER = ("ttft", "itl", "tpot", "e2e", "goodput", "throughput", "requests")
OUTCOMES = {
    "ok": ("answered", "ok", ""),
    "cancelled": ("cancelled by the client, as planned", "held", "q"),
    "refused": ("refused", "failed", "is-bad"),
    "failed": ("failed", "failed", "is-bad"),
    "truncated": ("cut off", "failed", "is-bad"),
    "timeout": ("timed out", "silent", "is-warn"),
    "connection": ("connection lost", "failed", "is-bad"),
    "stopped": ("the run ended first", "held", "q"),
    "skipped": ("never sent", "idle", "q"),
}


@dataclass(frozen=True, slots=True)
class Group:
    """The measures of one stream, or of the whole block (`name` is "")."""

    name: str
    what: str
    limits: str
    rows: tuple[MeasureRow, ...]
    headline: str
    folded: bool


def groups(
    found: Mapping[str, Any], drawn: Forest, scenario: LoadScenario | None, stretch: float, *, clients: bool
) -> list[Group]:
    """Streams in the scenario's order, with `clients` then each client label, the whole block last; in each group its measures
    with the mean before the tail.
    """
    streams = {stream.name: stream for stream in scenario.streams} if scenario else {}
    listed = [*found["measures"], *(found["clients"] if clients else ())]
    by_who: dict[str, list[Mapping[str, Any]]] = {}
    for measure in listed:
        by_who.setdefault(measure["who"], []).append(measure)
    names = sorted(by_who, key=lambda name: (name == "", name.startswith(CLIENT), _place(name, streams)))
    told = [name for name in names if name]
    return [_group(name, by_who[name], drawn, streams.get(name), stretch, folded=name in told[OPEN_STREAMS:]) for name in names]


def _place(name: str, streams: Mapping[str, Stream]) -> int:
    return list(streams).index(name) if name in streams else len(streams)


def clients_apart(scenario: LoadScenario | None) -> bool:
    """Whether some client label has more than one stream, so that its measures are not those of a stream."""
    labels = [stream.client for stream in scenario.streams if stream.client] if scenario else []
    return len(labels) != len(set(labels))


def _group(
    name: str, measures: Sequence[Mapping[str, Any]], drawn: Forest, stream: Stream | None, stretch: float, *, folded: bool
) -> Group:
    rows, before = [], ""
    for measure in sorted(measures, key=_rank):
        rows.append(measure_row(measure, drawn.marks.get(measure["key"]), first=measure["metric"] != before))
        before = measure["metric"]
    head = next((row for row in rows if row.statistic == "mean"), rows[0])
    return Group(
        name=name.replace(CLIENT, "client ", 1) if name.startswith(CLIENT) else name,
        what=_what(stream) if stream else "",
        limits=limit_words(stream, stretch) if stream else "",
        rows=tuple(rows),
        headline=f"{head.label} {head.statistic} {head.change}, {head.verdict}",
        folded=folded,
    )


def _what(stream: Stream) -> str:
    client = f"; client {stream.client}" if stream.client and stream.client != stream.name else ""
    return stream_words(stream) + client


def _rank(measure: Mapping[str, Any]) -> tuple[int, int]:
    metric, stat = measure["metric"], measure["stat"]
    return (
        MEASURE_ORDER.index(metric) if metric in MEASURE_ORDER else len(MEASURE_ORDER),
        STATISTIC_ORDER.index(stat) if stat in STATISTIC_ORDER else len(STATISTIC_ORDER),
    )


# -- fairness ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FairRow:
    """A measure of fairness of all streams (`who` is "") or of one."""

    who: str
    row: MeasureRow


def fair_rows(measures: Sequence[Mapping[str, Any]], *, clients: bool) -> list[FairRow]:
    """Of the whole block first, then metric by metric; of client labels only where they are not a stream each."""
    order = list(dict.fromkeys(measure["metric"] for measure in measures))
    listed = [measure for measure in measures if clients or not measure["who"].startswith(CLIENT)]
    if not clients:
        listed = [measure for measure in listed if measure["metric"] != "jain_clients"]
    ordered = sorted(listed, key=lambda measure: (measure["who"] != "", order.index(measure["metric"])))
    return [FairRow(measure["who"].replace(CLIENT, "client ", 1), measure_row(measure, None)) for measure in ordered]


# -- charts of requests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartRow:
    """One stream's pairs and distribution; `key` is part of the figures' ids, so it is a number, not the stream's name."""

    key: int
    name: str
    what: str
    n: str
    folded: bool


def request_figures(
    values: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]], measure: str, scenario: LoadScenario | None
) -> tuple[list[ChartRow], dict[str, Figure]]:
    """Rows and figures by id; `values` as `workers.sample_values.by_stream` gives them."""
    kind = KINDS[measure]
    streams = {stream.name: stream for stream in scenario.streams} if scenario else {}
    rows, figures = [], {}
    names = sorted(values, key=lambda name: list(streams).index(name) if name in streams else len(streams))
    for key, name in enumerate(names):
        arms = {
            arm: {pair: [value * kind.factor for value in each] for pair, each in values[name][arm].items() if each}
            for arm in ("A", "B")
        }
        numbers = sorted({*arms["A"], *arms["B"]})
        middles = [(pair, _middle(arms["A"], pair), _middle(arms["B"], pair)) for pair in numbers]
        figures[f"fig-{key}-pairs"] = charts.pairs(middles, unit=kind.unit)
        flat = {arm: [value for each in pairs.values() for value in each] for arm, pairs in arms.items()}
        figures[f"fig-{key}-dist"] = charts.distribution(flat["A"], flat["B"], kind.unit, kind.what)
        counts = " and ".join(words.whole(len(flat[arm])) for arm in ("A", "B") if flat[arm])
        what = f"{counts} {kind.what}s" if len({len(each) for each in flat.values()}) > 1 else f"{len(flat['A'])} {kind.what}s"
        planned = stream_words(streams[name]).split(";")[0] if name in streams else ""
        rows.append(ChartRow(key, name, planned, what, key >= OPEN_STREAMS))
    return rows, figures


def _middle(pairs: Mapping[int, Sequence[float]], pair: int) -> float | None:
    return median(pairs[pair]) if pair in pairs else None


def measure_choice(wanted: str) -> str:
    return wanted if wanted in DRAWN else DRAWN[0]


# -- levels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Level:
    name: str
    cells: tuple[LevelCell, LevelCell]  # A, B


@dataclass(frozen=True, slots=True)
class LevelCell:
    good: str  # "12 of 12", of those that met their limits, else of those answered
    share: float  # 0 to 1
    rate: str
    ttft: str
    e2e: str
    last: bool  # the last level that this arm carries


@dataclass(frozen=True, slots=True)
class Levels:
    stream: str
    rows: tuple[Level, ...]
    says: str
    limited: bool
    figure: Figure


NO_CELL = LevelCell("none", 0.0, "", "", "", False)


def levels(
    stages: Mapping[str, Sequence[Mapping[str, Any]]],
    carries: Mapping[str, Mapping[str, Any] | None],
    scenario: LoadScenario | None,
    stretch: float,
    arms: Mapping[str, str],
) -> list[Levels]:
    """For each stream with more than one level: a row a level with both arms, and what each arm carries."""
    streams = {stream.name: stream for stream in scenario.streams} if scenario else {}
    found = []
    for name in dict.fromkeys(str(row["stream"]) for rows in stages.values() for row in rows):
        by_arm = {arm: {row["stage"]: row for row in rows if row["stream"] == name} for arm, rows in stages.items()}
        numbers = sorted({stage for rows in by_arm.values() for stage in rows})
        named = {
            stage: stage_words(streams[name], stage, stretch) if name in streams else f"level {stage + 1}" for stage in numbers
        }
        limited = any(row["good"] is not None for rows in by_arm.values() for row in rows.values())
        last = {arm: carried["stage"] if (carried := carries.get(arm)) and carried["stream"] == name else None for arm in "AB"}
        rows = tuple(
            Level(named[stage], (_cell(by_arm["A"].get(stage), last["A"]), _cell(by_arm["B"].get(stage), last["B"])))
            for stage in numbers
        )
        says = _carry_words(named, numbers, last, arms) if limited else ""
        points = {arm: [(stage, by_arm[arm][stage]["ttft_s"]) for stage in numbers if stage in by_arm[arm]] for arm in "AB"}
        found.append(Levels(name, rows, says, limited, charts.levels([named[stage] for stage in numbers], points)))
    return found


def _cell(row: Mapping[str, Any] | None, last: int | None) -> LevelCell:
    if row is None:
        return NO_CELL
    good = row["ok"] if row["good"] is None else row["good"]
    return LevelCell(
        good=f"{good} of {row['requests']}",
        share=good / row["requests"] if row["requests"] else 0.0,
        rate=words.seconds(row["rate"]) if row["rate"] is not None else "none",
        ttft=words.seconds(row["ttft_s"]) if row["ttft_s"] is not None else "none",
        e2e=words.seconds(row["e2e_s"]) if row["e2e_s"] is not None else "none",
        last=last == row["stage"],
    )


def _carry_words(
    named: Mapping[int, str], numbers: Sequence[int], last: Mapping[str, int | None], arms: Mapping[str, str]
) -> str:
    told = []
    for arm in ("A", "B"):
        label = f"{arm} ({arms[arm]})"
        stage = last[arm]
        if stage is None:
            told.append(f"{label} does not even carry {named[numbers[0]]}")
        elif stage == numbers[-1]:
            told.append(f"{label} carries all of it, up to {named[stage]}")
        else:
            told.append(f"{label} carries {named[stage]} and not {named[numbers[numbers.index(stage) + 1]]}")
    return "; ".join(told) + ". Carried: nine of ten requests met their limits."


# -- outcomes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    stream: str
    word: str
    mark: str
    tone: str
    a: int
    b: int
    a_share: float
    b_share: float


def outcomes(found: Mapping[str, Mapping[str, Mapping[str, int]]]) -> tuple[str, list[OutcomeRow]]:
    """A sentence, and a row for each stream and outcome; no rows when every request was answered."""
    totals = {arm: sum(sum(counts.values()) for counts in streams.values()) for arm, streams in found.items()}
    well = {arm: sum(counts.get("ok", 0) for counts in streams.values()) for arm, streams in found.items()}
    if not sum(totals.values()):
        return "", []
    if totals == well:
        return f"Every request that counts was answered: {_both(totals)}.", []
    rows = []
    for stream in dict.fromkeys(name for streams in found.values() for name in streams):
        sides = {arm: found.get(arm, {}).get(stream, {}) for arm in ("A", "B")}
        sums = {arm: sum(counts.values()) or 1 for arm, counts in sides.items()}
        for outcome, (word, mark, tone) in OUTCOMES.items():
            a, b = (sides[arm].get(outcome, 0) for arm in ("A", "B"))
            if a or b:
                rows.append(OutcomeRow(stream, word, mark, tone, a, b, a / sums["A"], b / sums["B"]))
    return f"Answered: A {well.get('A', 0)} of {totals.get('A', 0)}, B {well.get('B', 0)} of {totals.get('B', 0)}.", rows


def _both(totals: Mapping[str, int]) -> str:
    return ", ".join(f"{words.whole(count)} under {arm}" for arm, count in totals.items())
