"""The verdict of a load in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workers.analysis.paired import MIN_PAIRS, Ratio, Verdict
from workers.analysis.sentences import percent
from workers.analysis.summary import Measure

FEWEST_TOLD = 2


def load_sentence(measures: Sequence[Measure], limited: Sequence[str], arm_b: str, equal_arms: bool) -> str:
    """TTFT and E2E of the streams that have limits (of all where none has), then the largest values, then when all was done."""
    found = {measure.key: measure for measure in measures if measure.ratio is not None}
    streams = [name for name in limited if f"{name}.e2e_p50" in found] or list(
        dict.fromkeys(key.split(".")[0] for key in found if "." in key)
    )
    told = [
        _told(found[key])
        for stream in streams[:FEWEST_TOLD]
        for key in (f"{stream}.ttft_p50", f"{stream}.ttft_max")
        if key in found
    ]
    if "makespan" in found:
        told.append(_told(found["makespan"]))
    if not told:
        return "No pair of blocks is complete, so there is nothing to compare yet."
    head = "In the second of two equal arms" if equal_arms else f"Under {arm_b}"
    ratios = [measure.ratio for measure in found.values() if measure.ratio is not None]
    few = max(ratio.n for ratio in ratios)
    tail = f" Too few pairs to show a difference: {few} of at least {MIN_PAIRS}." if few < MIN_PAIRS else ""
    return f"{head}: {'; '.join(told)}.{tail}"


def _told(measure: Measure) -> str:
    ratio = measure.ratio
    assert ratio is not None
    if ratio.verdict is Verdict.NOT_SHOWN:
        return f"{measure.label}: no difference shown ({percent(ratio.median - 1.0)}{_interval(ratio)})"
    return f"{measure.label}: {percent(ratio.median - 1.0)}{_interval(ratio)}"


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f", {percent(ratio.low - 1.0)} to {percent(ratio.high - 1.0)}"
