"""The verdict of a search for the highest rate, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from workers.analysis.differences import Word
from workers.analysis.sentences import percent
from workers.analysis.summary import Measure


def search_sentence(
    searches: Mapping[str, Sequence[Mapping[str, Any]]], labels: tuple[str, str], measures: Sequence[Measure]
) -> str:
    """Of each arm the bracket, its ends being the medians over its searches; then what is shown of the difference."""
    told = [f"{label}: {_carries(searches[arm])}" for arm, label in zip("AB", labels, strict=True) if searches[arm]]
    compared = next((each for each in measures if each.name.metric == "capacity" and each.ratio is not None), None)
    found = "; ".join(told)
    return f"{found[:1].upper()}{found[1:]}.{_compared(compared)}" if told else "No search is complete yet."


def _carries(found: Sequence[Mapping[str, Any]]) -> str:
    lows = [each["low_per_s"] for each in found if each["low_per_s"] is not None]
    highs = [each["high_per_s"] for each in found if each["high_per_s"] is not None]
    share = f"{found[0]['share'] * 100:g} % of requests within their limits"
    if not lows and not highs:
        return "no rate could be judged"
    if not lows:
        return f"none of the rates tried kept {share}, down to {min(highs):.3g} a second"
    text = f"{median(lows):.3g} requests a second with {share}"
    end = (
        "the generator could not send more" if any(each.get("cut_short") for each in found) else "the highest rate that was tried"
    )
    return f"{text}, {median(highs):.3g} not" if highs else f"{text}, {end}"


def _compared(measure: Measure | None) -> str:
    if measure is None or measure.ratio is None:
        return ""
    if measure.word is Word.TOO_FEW:
        return " Not enough runs to show a difference."
    if measure.word is Word.NOT_SHOWN:
        return " No difference between them is shown."
    ratio = measure.ratio
    low, high = (None if end is None else percent(end - 1.0) for end in (ratio.low, ratio.high))
    between = f" ({low.removesuffix(' %')} to {high})" if low and high else ""
    return f" Against the first, the second carries {percent(ratio.median - 1.0)}{between}."
