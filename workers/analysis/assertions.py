"""What a script may demand of a result: `short.wall.p50 ratio>=2.5`, `client:shop.ttft.p95 diff<=0.2s surely`. Pure.

    assertion = measure quantity operator bound ["surely"]
    measure   = [who "."] metric ["." statistic]          who: a stream, "client:" and a label; without it, of the whole block
    quantity  = "ratio" | "b/a" | "change" | "diff" | "a" | "b" | "verdict"
    operator  = ">=" | ">" | "<=" | "<"; of "verdict" "=" | "!="
    bound     = number ["%" | "s" | "ms"]; of "verdict" a word of `Word`, with "-" or a space between its words

docs/experiments.md has the words for operators.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.analysis.differences import Word
from workers.analysis.naming import CLIENT, METRICS, STATISTICS

type Row = Mapping[str, Any]

QUANTITIES = ("ratio", "b/a", "change", "diff", "a", "b", "verdict")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
UNITS = {"": 1.0, "%": 1.0, "s": 1.0, "ms": 0.001}
SAME = {"wall": "e2e", "e2e": "wall"}  # one time under the names of the two forms of scenarios
EXAMPLE = '"victim.ttft.p95 diff<=0.2s"'
FORM = re.compile(
    r"\s*(?P<measure>\S.*?)\s+(?P<quantity>ratio|b/a|change|diff|a|b|verdict)\s*(?P<operator>>=|<=|!=|>|<|=)\s*(?P<bound>.+?)"
    r"(?P<surely>\s+surely)?\s*",
    re.IGNORECASE,
)
NUMBER = re.compile(r"(?P<number>[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?)\s*(?P<unit>%|ms|s)?", re.IGNORECASE)


class AssertionFault(ValueError):
    """It is not in the grammar, or asks for what is not there; the message is a sentence or more for the operator."""


@dataclass(frozen=True, slots=True)
class Demand:
    """`bound` is in the measure's unit, per cent for "change"; `word` is set, and `bound` is not, of "verdict"."""

    text: str
    who: str
    metric: str
    stat: str
    quantity: str
    operator: str
    bound: float = 0.0
    word: str = ""
    surely: bool = False

    @property
    def measure(self) -> str:
        return ".".join(part for part in (self.who, self.metric, self.stat) if part)


@dataclass(frozen=True, slots=True)
class Answer:
    """`low` and `high`: of the value, None without an interval. `said`: one line."""

    text: str
    met: bool
    value: float | None
    low: float | None
    high: float | None
    n: int
    said: str


def parse(text: str) -> Demand:
    """Raises AssertionFault."""
    found = FORM.fullmatch(text)
    if found is None:
        raise AssertionFault(
            f"{text!r} is no assertion: it needs a measure, a quantity ({', '.join(QUANTITIES)}), an operator and a bound, "
            f"as in {EXAMPLE}."
        )
    who, metric, stat = _measure(found["measure"], text)
    quantity, sign, surely = found["quantity"].lower(), found["operator"], found["surely"] is not None
    if quantity == "verdict":
        return Demand(text, who, metric, stat, quantity, sign, word=_word(sign, found["bound"], surely, text))
    if sign not in OPERATORS:
        raise AssertionFault(f"{text!r}: {quantity} is compared with {', '.join(OPERATORS)}, not with {sign}.")
    if quantity == "ratio" and sign in ("<", "<="):
        raise AssertionFault(
            f"{text!r}: ratio says how many times better B is, so a B that is worse would meet an upper bound. Write how much "
            "worse it may be: change<=5% of a time, change>=-5% of a rate, or b/a with either operator."
        )
    return Demand(text, who, metric, stat, quantity, sign, _bound(found["bound"], quantity, metric, text), surely=surely)


def _measure(measure: str, text: str) -> tuple[str, str, str]:
    """Read from its end, since a client's label may hold anything."""
    rest, dot, last = measure.rpartition(".")
    stat = last if last in STATISTICS else ""
    if stat:
        rest, dot, last = rest.rpartition(".")
    if last not in METRICS or not (rest or not dot):
        known = ", ".join(METRICS)
        raise AssertionFault(
            f"{text!r}: {last or measure!r} is no metric; known are {known}; statistics are {', '.join(STATISTICS)}."
        )
    return rest, last, stat


def _word(sign: str, bound: str, surely: bool, text: str) -> str:
    word = bound.strip().strip("'\"").replace("-", " ").lower()
    if sign not in ("=", "!=") or word not in set(Word) or surely:
        raise AssertionFault(f"{text!r}: a verdict is compared with = or != and one of: {', '.join(Word)}.")
    return word


def _bound(bound: str, quantity: str, metric: str, text: str) -> float:
    found = NUMBER.fullmatch(bound.strip())
    if found is None:
        raise AssertionFault(f"{text!r}: {bound.strip()!r} is no number.")
    unit = (found["unit"] or "").lower()
    allowed = {"change": ("", "%"), "ratio": ("",), "b/a": ("",)}.get(
        quantity, ("", "s", "ms") if METRICS[metric].unit == "s" else ("",)
    )
    if unit not in allowed:
        raise AssertionFault(f"{text!r}: {quantity} of {metric} has no unit {unit!r}.")
    return float(found["number"]) * UNITS[unit]


def check_names(demands: Iterable[Demand], whos: Sequence[str]) -> None:
    """Before anything is sent: whether whom they ask about is in the scenario. Raises AssertionFault."""
    for demand in demands:
        if demand.who and demand.who not in whos:
            streams = [who for who in whos if not who.startswith(CLIENT)]
            clients = [who for who in whos if who.startswith(CLIENT)]
            told = f"streams are {', '.join(streams)}" + (f"; clients are {', '.join(clients)}" if clients else "")
            raise AssertionFault(f"{demand.text!r}: {demand.who!r} is neither a stream nor a client of the scenario; {told}.")


def judge(demand: Demand, rows: Sequence[Row]) -> Answer:
    """`rows` as `workers.measure_rows.measure_row` gives them. Raises AssertionFault when the measure is not among them."""
    row = _row(demand, rows)
    if demand.quantity == "verdict":
        met = (row["word"] == demand.word) == (demand.operator == "=")
        return Answer(demand.text, met, None, None, None, row["ratio"]["n"], _said(demand, row, met, row["word"]))
    value, low, high = _value(demand.quantity, row)
    holds = OPERATORS[demand.operator]
    met = value is not None and holds(value, demand.bound)
    if demand.surely:
        met = low is not None and high is not None and holds(low, demand.bound) and holds(high, demand.bound)
    told = _figures(demand.quantity, value, low, high)
    return Answer(demand.text, met, value, low, high, row["ratio"]["n"], _said(demand, row, met, told))


def _row(demand: Demand, rows: Sequence[Row]) -> Row:
    mine = [row for row in rows if row["who"] == demand.who and row["metric"] in (demand.metric, SAME.get(demand.metric))]
    if not mine:
        known = sorted({".".join(part for part in (row["who"], row["metric"]) if part) for row in rows})
        raise AssertionFault(
            f"{demand.text!r}: the result has no {demand.measure}; it has {', '.join(known) or 'no measure at all'}."
        )
    stats = [row["stat"] for row in mine]
    if stats == [""] and demand.stat in ("", "mean", "p50"):  # one value a block is its own mean and median
        return mine[0]
    for row in mine:
        if row["stat"] == (demand.stat or "p50"):
            return row
    why = " A 95th percentile needs 20 values a block, a 99th 100." if demand.stat in ("p95", "p99") else ""
    told = ", ".join(stat for stat in stats if stat) or "one value a block"
    raise AssertionFault(f"{demand.text!r}: the result has no {demand.measure}, but {told}.{why}")


def _value(quantity: str, row: Row) -> tuple[float | None, float | None, float | None]:
    ratio, difference = row["ratio"], row["difference"]
    middle, low, high = ratio["median"], ratio["low"], ratio["high"]
    match quantity:
        case "a" | "b":
            return row[quantity]["median"], row[quantity]["min"], row[quantity]["max"]
        case "diff":
            return difference["value"], difference["low"], difference["high"]
        case "change":
            return _each(lambda value: 100.0 * (value - 1.0), middle, low, high)
        case "ratio" if row["better"] == "lower":
            return _each(lambda value: 1.0 / value, middle, high, low)
        case _:
            return middle, low, high


def _each(of: Callable[[float], float], *values: float | None) -> tuple[float | None, float | None, float | None]:
    middle, low, high = (None if value is None else of(value) for value in values)
    return middle, low, high


def _figures(quantity: str, value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "nothing was measured"
    unit = " %" if quantity == "change" else ""
    what = "blocks " if quantity in ("a", "b") else ""
    between = f" ({what}{low:.4g} to {high:.4g}{unit})" if low is not None and high is not None else " (no interval)"
    return f"{value:.4g}{unit}{between}"


def _said(demand: Demand, row: Row, met: bool, told: str) -> str:
    """ "met: short.wall.p50 ratio>=2.5: 3.1 (2.9 to 3.3); A 4.2 s, B 1.35 s, 8 pairs, faster"."""
    sides = ", ".join(
        f"{side.upper()} {row[side]['median']:.4g} {row['unit']}".rstrip()
        for side in ("a", "b")
        if row[side]["median"] is not None
    )
    n = row["ratio"]["n"]
    shown = row["word"] not in (Word.NOT_SHOWN, Word.TOO_FEW)
    noise = ", within the noise of equal arms" if row["below_floor"] and shown else ""
    head = "met" if met else "not met"
    return f"{head}: {demand.text.strip()}: {told}; {sides}, {n} pair{'' if n == 1 else 's'}, {row['word']}{noise}"
