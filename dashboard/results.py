"""What the page of a run shows, put together from `workers.selectors.results`. No ORM: everything comes in as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import charts, present
from dashboard.charts import words
from dashboard.charts.base import Figure
from dashboard.charts.forest import Forest, Mark
from dashboard.charts.pairs import Row, rows_of
from dashboard.measures import PAIR_KINDS, STATISTICS, Kind, kind_of
from workers.analysis.paired import Ratio, Verdict

MOST_TOLD = 4  # streams in the line over a timeline
UNKNOWN_NOISE = "Nothing is known of the noise on this server: no run with two equal arms of about this size."
# key of a measure -> what a run is about ("primary"), or what it must not harm ("guard")
ROLES = {"short_wall": "primary", "cold_wall": "guard", "makespan": "guard"}
QUIET = ("no difference shown", "not enough runs", "not comparable")
MARKS = {
    **{"faster": "left", "slower": "right", "more even": "left", "less even": "right"},
    **{"no difference shown": "same", "not enough runs": "info", "not comparable": "unknown"},
}


@dataclass(frozen=True, slots=True)
class Value:
    """One arm's figure: the median and, for the hover, its range and n."""

    text: str
    title: str


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """`first`: of its metric, whose name then stands before it. `anchor`: of the definition. `quiet`: nothing is shown."""

    key: str
    label: str
    statistic: str
    anchor: str
    first: bool
    role: str
    unit: str
    a: Value
    b: Value
    change: str
    interval: Value
    difference: Value
    n: int
    verdict: str
    mark: str
    quiet: bool
    noise: str  # why a difference that is shown may still be noise; ""
    dot: Mark | None


def measure_rows(measures: Sequence[Mapping[str, Any]], drawn: Forest) -> list[MeasureRow]:
    return [measure_row(measure, drawn.marks.get(measure["key"])) for measure in measures]


def measure_row(measure: Mapping[str, Any], dot: Mark | None, *, first: bool = True) -> MeasureRow:
    """`measure` as `workers.measure_rows.measure_row` gives it."""
    ratio, kind, word = measure["ratio"], kind_of(measure), str(measure["word"])
    n = max(ratio["n"], measure["difference"]["n"])
    quiet = word in QUIET
    return MeasureRow(
        key=measure["key"],
        label=kind.name,
        statistic=STATISTICS.get(measure["stat"], measure["stat"]),
        anchor=kind.anchor,
        first=first,
        role=ROLES.get(measure["key"], "") if pair_of_two(measure) else "",
        unit=kind.unit,
        a=_value(measure["a"], kind, n),
        b=_value(measure["b"], kind, n),
        change=words.change(ratio["median"], kind.told) if ratio["median"] else "no ratio",
        interval=_interval(ratio),
        difference=_difference(measure["difference"], kind),
        n=n,
        verdict=word,
        mark=MARKS.get(word, ""),
        quiet=quiet,
        noise=_noise(measure) if measure["below_floor"] and not quiet else "",
        dot=dot,
    )


def compared_row(row: Mapping[str, Any], dot: Mark | None, *, first: bool = True) -> MeasureRow:
    """As `measure_row`, of two runs: there is no floor that belongs to both."""
    return measure_row({**row, "below_floor": False}, dot, first=first)


def pair_of_two(measure: Mapping[str, Any]) -> bool:
    """Whether it is one of warm-behind-cold's."""
    return measure["key"] in PAIR_KINDS and measure["label"] == PAIR_KINDS[measure["key"]].name


def _noise(measure: Mapping[str, Any]) -> str:
    return f"Two equal arms differed by {measure['floor'] * 100:.1f} % in it, which is at least as much."


def _interval(ratio: Mapping[str, Any]) -> Value:
    text = words.interval(ratio["median"], ratio["low"], ratio["high"])
    level = f"; covers {ratio['level'] * 100:.1f} %" if ratio.get("level") else ""
    return Value(text or "none yet", f"of the median ratio over {ratio['n']} pairs{level}" if text else "too few pairs for one")


def _difference(found: Mapping[str, Any], kind: Kind) -> Value:
    """B minus A and its interval, in the unit shown."""
    if found["value"] is None:
        return Value("none yet", "no pair is done")
    text = words.signed(found["value"] * kind.factor)
    if found["low"] is not None:
        low, high = (words.signed(found[name] * kind.factor) for name in ("low", "high"))
        text += f" ({low} to {high})"
    return Value(text, f"{kind.unit}: {found['method_words']}".removeprefix(": "))


def _value(spread: Mapping[str, Any] | None, kind: Kind, n: int) -> Value:
    if spread is None or spread.get("median") is None:
        return Value("none yet", "no pair is done")
    middle, low, high = (words.seconds(spread[name] * kind.factor) for name in ("median", "min", "max"))
    return Value(middle, f"{low} to {high} {kind.unit}, {n} pair{'s' if n != 1 else ''}")


def wall_rows(pairs: Sequence[dict[str, Any]], role: str) -> list[Row]:
    return rows_of(pairs, role, "wall_s")


def pair_figures(pairs: Sequence[dict[str, Any]], planned: int) -> dict[str, Figure]:
    """For each role its pairs and its distribution, by the id of the script element that carries the figure."""
    figures = {}
    for role in ("short", "cold"):
        rows = wall_rows(pairs, role)
        figures[f"fig-{role}-pairs"] = charts.pairs(rows, planned, as_percent=role == "cold")
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
    """For a list of runs: "Short 3.1 times sooner (2.9 to 3.3, 8 pairs)"."""
    if ratio is None:
        return ""
    pairs = f"{ratio.n} pair{'s' if ratio.n != 1 else ''}"
    told = f"Short {words.change(ratio.median)}"
    between = words.interval(ratio.median, ratio.low, ratio.high)
    if not between:
        return f"{told} ({pairs}, too few for an interval)"
    return f"{told} ({between}, {pairs})" if ratio.verdict is Verdict.SHOWN else f"{told} ({between}, {pairs}): {ratio.verdict}"


def arm_sentence(block: Mapping[str, Any]) -> str:
    """Over an arm's timeline: "short took 23.4 s, cold took 25.4 s", of a load "victim 8 of 8 done by 9.1 s"."""
    requests = block.get("requests") or []
    roles = list(dict.fromkeys(str(request["role"]) for request in requests))
    if set(roles) <= {"short", "cold"}:
        told = [_one_done(role, request) for role in ("short", "cold") for request in requests if request["role"] == role]
    else:
        told = [_all_done(role, requests) for role in roles[:MOST_TOLD]]
        told += [f"{len(roles) - MOST_TOLD} more streams"] if len(roles) > MOST_TOLD else []
    if left := block.get("left_out"):
        told.append(f"the last {words.whole(left)} iterations are not kept")
    return ", ".join(told)


def _one_done(role: str, request: Mapping[str, Any]) -> str:
    done = request.get("done_at")
    return f"{role} took {words.seconds(done - request['sent_at'])} s" if done else f"{role} not done"


def _all_done(role: str, requests: Sequence[Mapping[str, Any]]) -> str:
    mine = [request for request in requests if request["role"] == role]
    ends = [request["done_at"] for request in mine if request.get("done_at") is not None]
    begin = min(request["sent_at"] for request in requests)
    by = f" by {words.seconds(max(ends) - begin)} s" if ends else ""
    return f"{role} {len(ends)} of {len(mine)} done{by}"


def notes(found: Mapping[str, Any]) -> list[str]:
    """Beside the verdict: how much two equal arms differ here, and what holds without the pairs that something touched."""
    noise = found["noise"]
    if found["arms"]["A"] == found["arms"]["B"] and not noise:
        known = "Its arms are equal, so what differs between them is the noise of this server."
    else:
        known = noise["text"] if noise else UNKNOWN_NOISE
    return [known, *found["notes"]]


def interval_head(measures: Sequence[Mapping[str, Any]]) -> str:
    """ "95 % interval", or what it covers where the number of pairs allows less."""
    levels = [measure["ratio"]["level"] for measure in measures if measure["ratio"].get("level")]
    if not levels:
        return "Interval"
    low = min(levels)
    return "95 % interval" if low >= 0.95 else f"{int(low * 1000) / 10:g} % interval"


def chart_roles(conditions: Mapping[str, Any], pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the pairs section: whose requests, what they are, what the labels beside the dots tell, how many."""
    roles = []
    for key, name in (("short", "Short"), ("cold", "Cold")):
        rows = wall_rows(pairs, key)
        told = "" if len(rows) > charts.LABELLED else "the change" if key == "cold" else _told(rows)
        roles.append({"key": key, "name": name, "what": _what(key, conditions), "told": told, "n": len(rows)})
    return roles


def _told(rows: Sequence[Row]) -> str:
    """What the labels of the short one's pairs tell: a factor, a change in per cent, or now this, now that."""
    in_percent = {words.change(b / a).endswith("%") for _, a, b in rows if a and b}
    return "times sooner or the change" if len(in_percent) == 2 else "the change" if in_percent == {True} else "times sooner"


def _what(role: str, conditions: Mapping[str, Any]) -> str:
    sizes = conditions.get("tokens") or {}
    tokens, depth = sizes.get(role), sizes.get("depth")
    if not isinstance(tokens, int):
        return "on a warm slot" if role == "short" else "nothing cached"
    text = f"{words.whole(tokens)} tokens"
    return f"{text} on warm {words.whole(depth)}" if role == "short" and isinstance(depth, int) else text


def timeline_arms(found: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"letter": arm, "name": found["arms"][arm], "says": arm_sentence(found["timelines"][arm])}
        for arm in ("A", "B")
        if arm in found["timelines"]
    ]


def pair_choice(found: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """The pair whose timelines are shown and its neighbours to go to."""
    numbers = sorted({int(point[0]) for measure in found["measures"] for point in measure["points"]})
    number = found["pair"]
    if number not in numbers:
        return {"number": number, "all": numbers, "near": [], "typical": False, "held": False}
    at = numbers.index(number)
    near = [
        {"number": each, "text": f"pair {each}" if each == number else str(each)} for each in numbers[max(0, at - 1) : at + 2]
    ]
    iterations = [step for block in found["timelines"].values() for step in block.get("iterations") or []]
    held = any(step.get("held") for step in iterations)
    typical = bool(found["pairs"]) and wanted != str(number)
    return {"number": number, "all": numbers, "near": near, "typical": typical, "held": held}


HEADLINE = re.compile(r"[0-9.]+\s(?:times|%) (?:sooner|later|less|longer)")


def verdict_parts(sentence: str) -> tuple[str, str, str]:
    """The sentence around its first finding, which the page sets in bold; that part is "" when there is none."""
    sentence = present.unbroken(sentence)
    found = HEADLINE.search(sentence)
    return (sentence[: found.start()], found[0], sentence[found.end() :]) if found else (sentence, "", "")
