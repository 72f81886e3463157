"""Two runs side by side, and one scenario over time: what differs in how they ran, whether that lets them be compared, and by how
much their measures differ. Pure; rows as `workers.measure_rows.measure_row` gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.analysis.differences import METHODS, Difference, unpaired_difference, word_of
from workers.analysis.naming import METRICS
from workers.analysis.numbers import spread

type Json = dict[str, Any]
type Row = Mapping[str, Any]

NOT_COMPARABLE = "not comparable"
SAME_SCALE = 1.05  # sizes that differ by less make no other load
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of how a run ran. `same`: the values that are compared, where `text` is rounded. `reason`: what a difference of it
    is called when it forbids the comparison, and "" when it does not.
    """

    key: str
    label: str
    text: str
    same: Any
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """A run as it is compared: `settings` in the order of a page, `measures` its rows."""

    run: int
    settings: Sequence[Setting]
    measures: Sequence[Row]


def differing(first: Side, second: Side) -> list[Json]:
    """{"key", "label", "first", "second", "differs", "forbids"} of each setting of either run."""
    others = {each.key: each for each in second.settings}
    mine = {each.key: each for each in first.settings}
    found = []
    for key in dict.fromkeys([*mine, *others]):
        one, other = mine.get(key), others.get(key)
        known = one or other
        assert known is not None
        differs = one is None or other is None or not _same(one.same, other.same)
        found.append(
            {
                "key": key,
                "label": known.label,
                "first": one.text if one else UNKNOWN,
                "second": other.text if other else UNKNOWN,
                "differs": differs,
                "forbids": bool(differs and known.reason and one and other),
            }
        )
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and one > 0 and other > 0:
        return max(one / other, other / one) <= SAME_SCALE
    return bool(one == other)


def reasons(first: Side, second: Side) -> list[str]:
    """Why the two cannot be compared, a sentence each; none when they can."""
    said = {each.key: each.reason for each in (*first.settings, *second.settings)}
    return [
        f"Not comparable because {said[row['key']]} differs: "
        f"{row['first']} in run {first.run}, {row['second']} in run {second.run}."
        for row in differing(first, second)
        if row["forbids"]
    ]


def compared(first: Side, second: Side, seed: int) -> list[Json]:
    """Of each measure that both runs have:

    key, who, metric, stat, group, label, unit, better; `arms` {"A", "B"}, each {"first", "second" ({"median", "min", "max"} over
    blocks), "difference" (second minus first, of the means, as `measure_row` has it, by an unpaired bootstrap over blocks),
    "mean" (of the first), "change" (second over first of the means, minus 1; None where the first is 0), "word"}; and `effect`,
    what B did against A in each run: {"first", "second"}, each {"ratio", "word", "below_floor"}.

    A word is "not comparable" where `reasons` gives any.
    """
    allowed = not reasons(first, second)
    others = {row["key"]: row for row in second.measures}
    return [_row(row, others[row["key"]], seed, allowed) for row in first.measures if row["key"] in others]


def _row(one: Row, other: Row, seed: int, allowed: bool) -> Json:
    kept = ("key", "who", "client", "metric", "stat", "group", "label", "unit", "better")
    arms = {
        arm: _arm([point[place] for point in one["points"]], [point[place] for point in other["points"]], one, seed, allowed)
        for place, arm in ((1, "A"), (2, "B"))
    }
    effect = {
        name: {"ratio": row["ratio"], "word": row["word"], "below_floor": row["below_floor"]}
        for name, row in (("first", one), ("second", other))
    }
    return {**{name: one[name] for name in kept}, "arms": arms, "effect": effect}


def _arm(first: Sequence[float], second: Sequence[float], row: Row, seed: int, allowed: bool) -> Json:
    difference = unpaired_difference(first, second, seed)
    before = sum(first) / len(first) if first else 0.0
    even = str(row["metric"]).startswith("jain")
    word = word_of(None, difference, METRICS[row["metric"]].better, even=even).value if allowed else NOT_COMPARABLE
    sides = {name: _spread(values) for name, values in (("first", first), ("second", second))}
    change = difference.mean / before if difference is not None and before else None
    return {**sides, "difference": _difference(difference), "mean": before, "change": change, "word": word}


def _spread(values: Sequence[float]) -> Json:
    found = spread(values)
    return (
        {"median": None, "min": None, "max": None}
        if found is None
        else {"median": found.median, "min": found.min, "max": found.max}
    )


def _difference(found: Difference | None) -> Json:
    if found is None:
        return {
            **dict.fromkeys(("value", "mean", "median", "low", "high", "level")),
            "n": 0,
            "method": "",
            "method_words": METHODS[""],
        }
    return {
        "value": found.value,
        "mean": found.mean,
        "median": found.median,
        "low": found.low,
        "high": found.high,
        "level": found.level,
        "n": found.n,
        "method": found.method,
        "method_words": METHODS[found.method],
    }


def trend_rows(runs: Sequence[tuple[Json, Sequence[Row]]]) -> list[Json]:
    """A line for each measure of the newest run: key, label, unit, group, better and its `points`, in the order of `runs`.

    `runs`: what is said of each run (it has its "run" and "at") and its measures. A point is what is said, with "a" and "b"
    (medians over blocks), "ratio", "word" and "below_floor"; a run without the measure has no point.
    """
    if not runs:
        return []
    by_key = [(said, {row["key"]: row for row in measures}) for said, measures in runs]
    found = []
    for row in runs[-1][1]:
        points = [
            {
                **said,
                "a": rows[row["key"]]["a"]["median"],
                "b": rows[row["key"]]["b"]["median"],
                **{name: rows[row["key"]][name] for name in ("ratio", "word", "below_floor")},
            }
            for said, rows in by_key
            if row["key"] in rows
        ]
        kept = ("key", "who", "metric", "stat", "group", "label", "unit", "better")
        found.append({**{name: row[name] for name in kept}, "points": points})
    return found
