"""The verdict of a load in words: the tail beside the mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workers.analysis.differences import Word
from workers.analysis.naming import CLIENT, STATISTICS, TAIL
from workers.analysis.paired import LEVEL, MIN_PAIRS, Ratio
from workers.analysis.sentences import amount_words, change_words, percent
from workers.analysis.summary import Measure

MOST_TOLD = 2
MOST_LISTED = 4


def load_sentence(measures: Sequence[Measure], limited: Sequence[str], arm_b: str, equal_arms: bool) -> str:
    """TTFT of the streams that have limits (of all where none has), its mean and its tail, then when all was done."""
    found = {measure.key: measure for measure in measures if measure.ratio is not None}
    everyone = dict.fromkeys(each.name.who for each in found.values() if each.name.who and not each.name.who.startswith(CLIENT))
    streams = [name for name in limited if f"{name}.ttft_mean" in found] or list(everyone)
    told = [text for stream in streams[:MOST_TOLD] if (text := _stream(stream, found))]
    if "makespan" in found:
        told.append(f"all done {_told(found['makespan'])}")
    if not told:
        return "No pair of blocks is complete, so there is nothing to compare yet."
    head = "In the second of two equal arms" if equal_arms else f"Under {arm_b}"
    few = max(measure.ratio.n for measure in found.values() if measure.ratio is not None)
    tail = f" Not enough runs to show a difference: {few} pair{'s' if few > 1 else ''} of at least {MIN_PAIRS}."
    return f"{head}: {'; '.join(told)}.{tail if few < MIN_PAIRS else ''}"


def _stream(stream: str, found: Mapping[str, Measure]) -> str:
    mean = found.get(f"{stream}.ttft_mean")
    tail = next((found[key] for stat in TAIL if (key := f"{stream}.ttft_{stat}") in found), None)
    parts = [f"{STATISTICS[each.name.stat]} {_told(each)}" for each in (mean, tail) if each is not None]
    return f"{stream}: TTFT, {', '.join(parts)}" if parts else ""


def _told(measure: Measure) -> str:
    ratio = measure.ratio
    assert ratio is not None
    if measure.word is Word.NOT_SHOWN:
        return f"{Word.NOT_SHOWN} ({percent(ratio.median - 1.0)}{_interval(ratio)})"
    if measure.word is Word.TOO_FEW:
        return change_words(ratio, "sooner", "later")
    within = ", within the noise of equal arms" if measure.below_floor else ""
    return f"{amount_words(ratio, 'sooner', 'later')}{within}"


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f", {percent(ratio.low - 1.0)} to {percent(ratio.high - 1.0)}"


def floor_sentence(measures: Sequence[Measure]) -> str:
    """The warning of measures whose difference is shown and no larger than that of equal arms; empty without any."""
    labels = [measure.label for measure in measures if measure.shown and measure.below_floor]
    if not labels:
        return ""
    more = f" and {len(labels) - MOST_LISTED} more" if len(labels) > MOST_LISTED else ""
    listed = "; ".join(labels[:MOST_LISTED])
    return f"Noise floor above the effect: two equal arms differed at least as much before the comparison, in {listed}{more}."


def chance_sentence(measures: Sequence[Measure]) -> str:
    """How many of the intervals miss by chance alone; empty while that is fewer than one."""
    expected = (1.0 - LEVEL) * sum(measure.word is not Word.TOO_FEW for measure in measures)
    if expected < 1:
        return ""
    n = sum(measure.word is not Word.TOO_FEW for measure in measures)
    return f"{n} measures are compared: about {expected:.0f} of them would show a difference by chance alone."
