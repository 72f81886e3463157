"""Two runs beside each other, put together from `workers.selectors.compare`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.charts import words
from dashboard.measure_groups import Group, groups_of
from dashboard.measures import kind_of
from dashboard.results import MeasureRow, compared_row

BETTER = ("faster", "more even")
WORSE = ("slower", "less even")


@dataclass(frozen=True, slots=True)
class Setting:
    label: str
    first: str
    second: str
    differs: bool
    forbids: bool


def settings_of(found: Mapping[str, Any]) -> tuple[list[Setting], list[Setting]]:
    """How the two runs ran: what differs, what forbids the comparison first, and what is the same."""
    rows = [Setting(row["label"], row["first"], row["second"], row["differs"], row["forbids"]) for row in found["configuration"]]
    differing = sorted((row for row in rows if row.differs), key=lambda row: not row.forbids)
    return differing, [row for row in rows if not row.differs]


def as_ratios(measures: Sequence[Mapping[str, Any]], arm: str) -> list[dict[str, Any]]:
    """The rows of one arm with a "ratio" of the second run to the first, as a forest and a table of measures take them.

    The interval is that of the difference of the means, over the first run's mean.
    """
    found = []
    for measure in measures:
        side = measure["arms"][arm]
        change, difference = side["change"], side["difference"]
        ratio: dict[str, Any] = {"median": None, "low": None, "high": None, "level": difference["level"], "n": difference["n"]}
        if change is not None and change > -1:
            ratio["median"] = 1 + change
            base = side["mean"]
            if base and difference["low"] is not None:
                ratio.update(low=1 + difference["low"] / base, high=1 + difference["high"] / base)
        found.append(
            {
                **{name: measure[name] for name in ("key", "who", "metric", "stat", "label", "unit", "better")},
                **{"a": side["first"], "b": side["second"], "ratio": ratio, "difference": difference, "word": side["word"]},
                **{"below_floor": False, "floor": None, "points": []},
            }
        )
    return found


def compared_groups(rows: Sequence[Mapping[str, Any]], marks: Mapping[str, Any]) -> list[Group]:
    streams = [row for row in rows if not row["who"].startswith("client:") and not _fair(row)]
    return groups_of(streams, lambda row, first: compared_row(row, marks.get(row["key"]), first=first))


def _fair(row: Mapping[str, Any]) -> bool:
    return row["metric"] in ("gap", "wait", "oldest_wait", "slowdown") or str(row["metric"]).startswith("jain")


def verdict(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], arm: str) -> str:
    """What the second run did against the first under one arm; why it cannot be said comes from `reasons` instead."""
    first, second = found["first"], found["second"]
    label = f"arm {arm} ({second['arms'][arm]})"
    counted = {word: [row for row in rows if row["word"] in word] for word in (BETTER, WORSE)}
    few = all(row["word"] == "not enough runs" for row in rows)
    if not rows:
        return f"Runs {first['run']} and {second['run']} have no measure in common."
    if few:
        return f"Not enough blocks in runs {first['run']} and {second['run']} to show a difference of {label}."
    told = [
        f"{_count(counted[BETTER])} better" if counted[BETTER] else "",
        f"{_count(counted[WORSE])} worse" if counted[WORSE] else "",
    ]
    shown = [text for text in told if text]
    if not shown:
        return (
            f"Between runs {first['run']} and {second['run']} no difference of {label} is shown in any of {len(rows)} measures."
        )
    most = max((row for each in counted.values() for row in each), key=_size)
    by = words.change(most["ratio"]["median"], kind_of(most).told)
    told_most = f"; most of all {most['label'].replace(': ', ' ')}, {by}" if most["ratio"]["median"] else ""
    return f"In run {second['run']} against run {first['run']}, {label}: {' and '.join(shown)} of {len(rows)}{told_most}."


def _count(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{len(rows)} measure{'s' if len(rows) != 1 else ''}"


def _size(row: Mapping[str, Any]) -> float:
    ratio = row["ratio"]["median"]
    return max(ratio, 1 / ratio) if ratio else 0.0


@dataclass(frozen=True, slots=True)
class EffectRow:
    """What B did against A in each of two runs."""

    label: str
    who: str
    statistic: str
    first: MeasureRow
    second: MeasureRow


def effect_rows(found: Mapping[str, Any]) -> list[EffectRow]:
    """Of means and of what has one value a block; of streams and the whole block."""
    rows = []
    for measure in found["measures"]:
        if measure["stat"] not in ("", "mean") or measure["who"].startswith("client:"):
            continue
        sides = [_effect(measure, measure["effect"][name]) for name in ("first", "second")]
        rows.append(EffectRow(sides[0].label, measure["who"], sides[0].statistic, sides[0], sides[1]))
    return rows


def _effect(measure: Mapping[str, Any], effect: Mapping[str, Any]) -> MeasureRow:
    nothing = {"value": None, "low": None, "high": None, "n": 0, "method_words": ""}
    kept = {name: measure[name] for name in ("key", "who", "metric", "stat", "label", "unit", "better")}
    return compared_row({**kept, **effect, "a": None, "b": None, "difference": nothing, "floor": None}, None)
