"""What the page of a run of streams shows beside its measures: charts, levels, outcomes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import charts
from dashboard.charts import words
from dashboard.charts.base import Figure
from dashboard.measure_groups import OPEN_STREAMS
from dashboard.measures import DRAWN, KINDS
from dashboard.stream_words import stage_words, stream_words
from workers.analysis.numbers import median
from workers.scenarios.streams import LoadScenario

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
