"""Measures in the form in which pages, exports and the command line read them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from workers.analysis.differences import METHODS, Difference
from workers.analysis.naming import CLIENT
from workers.analysis.numbers import Spread
from workers.analysis.summary import Measure

type Json = dict[str, Any]

NO_RATIO: Json = {"median": None, "low": None, "high": None, "level": None, "n": 0}
NO_DIFFERENCE: Json = {
    **dict.fromkeys(("value", "mean", "median", "low", "high", "level")),
    "n": 0,
    "method": "",
    "method_words": METHODS[""],
}


def measure_row(found: Measure) -> Json:
    """Keys:

    key ("victim.ttft_p95"), who (stream, "client:" and its label, or "" for the whole block), client (the label alone, else ""),
    metric, stat (mean, p50, p95, p99, max, or "" where a block has one value), group (times | rates | fairness), label, unit
    ("s", "1/s", or "" for a plain number), better ("lower" | "higher");
    a, b: {"median", "min", "max"} over the blocks of each arm;
    ratio: B against A, {"median", "low", "high", "level", "n"}; times_sooner: 1 / ratio;
    difference: B minus A in the unit, {"value" (what the interval is of), "mean", "median", "low", "high", "level", "n",
    "method" ("exact" | "bca" | ""), "method_words"};
    word: "faster" | "slower" | "more even" | "less even" | "no difference shown" | "not enough runs"; verdict: the older
    "shown" | "no difference shown" | "too few pairs", of the ratio alone;
    floor: the most that equal arms differed, as a share, None without a floor; below_floor: whether the ratio departs no further;
    points: [pair, A, B] of each pair.

    What is not known is None.
    """
    ratio, name = found.ratio, found.name
    return {
        "key": found.key,
        "who": name.who,
        "client": name.who.removeprefix(CLIENT) if name.who.startswith(CLIENT) else "",
        "metric": name.metric,
        "stat": name.stat,
        "group": name.told.group,
        "label": found.label,
        "unit": name.told.unit,
        "better": name.told.better,
        "a": spread_row(found.a),
        "b": spread_row(found.b),
        "ratio": asdict(ratio) if ratio else dict(NO_RATIO),
        "times_sooner": found.times_sooner,
        "difference": difference_row(found.difference),
        "word": found.word.value,
        "verdict": found.verdict.value,
        "floor": found.floor,
        "below_floor": found.below_floor,
        "points": [list(point) for point in found.points],
    }


def all_measures(found: Json) -> list[Json]:
    """Of a result: those of streams and the whole block, of clients, and of fairness."""
    return [*found["measures"], *found.get("clients", ()), *found.get("fairness", {}).get("measures", ())]


def spread_row(found: Spread | None) -> Json:
    return asdict(found) if found else {"median": None, "min": None, "max": None}


def difference_row(found: Difference | None) -> Json:
    if found is None:
        return dict(NO_DIFFERENCE)
    return {**asdict(found), "value": found.value, "method_words": METHODS[found.method]}
