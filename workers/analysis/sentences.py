"""Verdicts in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.analysis.paired import MIN_PAIRS, Ratio, Verdict
from workers.analysis.summary import Measure

AS_FACTOR = 1.25  # smaller differences read better as percent
MINUS = "\u2212"


def percent(change: float) -> str:
    """A relative change with its sign: 0.004 reads +0.4 %."""
    rounded = round(change * 100, 1)
    sign = "+" if rounded > 0 else MINUS if rounded < 0 else ""
    return f"{sign}{abs(rounded):.1f} %"


def value_words(field: str, value: Any) -> str:
    if isinstance(value, str):
        return value.replace("_", " ")
    name = field.replace("_", " ")
    if value is None:
        return f"no {name}"
    return f"{name} {value}"


def arm_words(policy: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What sets this arm apart from the other one; all of it when the arms are equal."""
    apart = {field: value for field, value in policy.items() if field not in other or other[field] != value}
    return ", ".join(value_words(field, value) for field, value in (apart or policy).items()) or "the policy found"


def verdict_sentence(found: Mapping[str, Measure], arm_b: str, equal_arms: bool) -> str:
    """The result of a run: the short request first, then the cold one, then both; each with its interval or why it has none."""
    short, cold, both = found["short_wall"].ratio, found["cold_wall"].ratio, found["makespan"].ratio
    if short is None or cold is None or both is None:
        return "No pair of blocks is complete, so there is nothing to compare yet."
    head = "In the second of two equal arms" if equal_arms else f"Under {arm_b}"
    text = f"{head} the short request {_finished(short)}; the cold one {_took(cold)}; both were done {_both(both)}."
    if short.verdict is Verdict.TOO_FEW:
        text += f" Too few pairs to show a difference: {short.n} of at least {MIN_PAIRS}."
    return text


def _finished(ratio: Ratio) -> str:
    pairs = f"{ratio.n} pair{'s' if ratio.n != 1 else ''}"
    if ratio.verdict is Verdict.NOT_SHOWN:
        return f"finished after the same time {_no_difference(ratio, pairs)}"
    return f"finished {_amount(ratio, 'sooner', 'later')}{_brackets(_interval(ratio), pairs)}"


def _took(ratio: Ratio) -> str:
    if ratio.verdict is Verdict.NOT_SHOWN:
        return f"took as long {_no_difference(ratio)}"
    return f"took {_amount(ratio, 'less time', 'longer')}{_brackets(_interval(ratio))}"


def _both(ratio: Ratio) -> str:
    if ratio.verdict is Verdict.NOT_SHOWN:
        return f"after the same time {_no_difference(ratio)}"
    return f"{_amount(ratio, 'sooner', 'later')}{_brackets(_interval(ratio))}"


def _no_difference(ratio: Ratio, *more: str) -> str:
    return _brackets(percent(ratio.median - 1), Verdict.NOT_SHOWN.value, *more).strip()


def _brackets(*parts: str) -> str:
    filled = [part for part in parts if part]
    return f" ({', '.join(filled)})" if filled else ""


def _as_percent(ratio: Ratio) -> bool:
    return max(ratio.median, 1 / ratio.median) < AS_FACTOR


def _amount(ratio: Ratio, below: str, above: str) -> str:
    word = below if ratio.median < 1 else above
    if _as_percent(ratio):
        return f"{abs(ratio.median - 1) * 100:.1f} % {word}"
    return f"{max(ratio.median, 1 / ratio.median):.1f} times {word}"


def change_words(ratio: Ratio, below: str, above: str) -> str:
    """ "+2.5 %" or "2.1 times sooner": what was seen, where nothing is shown."""
    return percent(ratio.median - 1.0) if _as_percent(ratio) else _amount(ratio, below, above)


def amount_words(ratio: Ratio, below: str, above: str) -> str:
    """ "2.1 times sooner (1.9 to 2.3)"."""
    return f"{_amount(ratio, below, above)}{_brackets(_interval(ratio))}"


def _interval(ratio: Ratio) -> str:
    """In the unit of _amount; empty without an interval."""
    if ratio.low is None or ratio.high is None:
        return ""
    if _as_percent(ratio):
        ends = sorted((abs(ratio.low - 1) * 100, abs(ratio.high - 1) * 100))
        return f"{ends[0]:.1f} to {ends[1]:.1f} %"
    ends = sorted((ratio.low, ratio.high) if ratio.median > 1 else (1 / ratio.low, 1 / ratio.high))
    return f"{ends[0]:.1f} to {ends[1]:.1f}"


def noise_sentence(difference: float, run: int) -> str:
    return f"Two equal arms differed by at most {difference * 100:.1f} % on this server (A/A, run {run})."


def floor_words(difference: float, pairs: int) -> str:
    """Of a run's own floor."""
    return (
        f"Two equal arms differed by at most {difference * 100:.1f} % "
        f"(A/A, {pairs} pair{'s' if pairs > 1 else ''} of blocks at the start of this run)."
    )


def robust_sentence(touched: Sequence[int], ratio: Ratio) -> str:
    """What the short request's ratio is without the pairs that something foreign touched."""
    numbers = ", ".join(str(number) for number in touched)
    name = "pair" if len(touched) == 1 else "pairs"
    return f"Without {name} {numbers} the short request {_finished(ratio)}."
