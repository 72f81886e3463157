"""A load of streams before it is sent: when requests come, and how much of the server's time they would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.charts import words
from dashboard.charts.base import tick_words, ticks
from workers.load.preview import Arrival

FEW = 48  # requests of a stream that are drawn one by one
BINS = 80
MOST_SHARE = 2.0  # the work lane is cut there


@dataclass(frozen=True, slots=True)
class Bar:
    """Per cent of the width from the left, and of the lane's height from its bottom."""

    x: float
    width: float
    height: float = 100.0
    sure: bool = True

    @property
    def y(self) -> float:
        return 100.0 - self.height


@dataclass(frozen=True, slots=True)
class Lane:
    """`work`: how long each request takes alone; `arrivals`: when it comes, or how many come in each of BINS stretches."""

    name: str
    slot: int | None
    says: str
    single: bool
    work: tuple[Bar, ...]
    arrivals: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class PlannedDrawing:
    """`work`: of each stretch, the share of the server's time that what comes then would take; `line` is where that is all."""

    lanes: tuple[Lane, ...]
    work: tuple[Bar, ...]
    line: float
    peak: float
    ticks: tuple[tuple[float, str], ...]
    unsure: bool
    alt: str


def planned(arrivals: Sequence[Arrival], lasts_s: float, slots: Mapping[str, int | None]) -> PlannedDrawing:
    """`slots`: of each stream in the order of its lane, the slot that it asks for."""
    end = max(lasts_s, max((each.at_s for each in arrivals), default=0.0), 1e-3)
    marks = ticks(0.0, end, 5)
    width = max(end * 1.02, marks[-1] if marks[-1] <= end * 1.12 else 0.0)
    marks = [mark for mark in marks if mark <= width]
    lanes = tuple(_lane(name, slot, [each for each in arrivals if each.stream == name], width) for name, slot in slots.items())
    shares = _shares(arrivals, width)
    peak = max(shares, default=0.0)
    top = min(max(1.1, peak), MOST_SHARE)
    return PlannedDrawing(
        lanes=lanes,
        work=tuple(_bin(place, min(share, top) / top) for place, share in enumerate(shares) if share > 0),
        line=round(100.0 - 100.0 / top, 2),
        peak=peak,
        ticks=tuple((round(mark / width * 100, 3), text) for mark, text in zip(marks, tick_words(marks), strict=True)),
        unsure=any(not each.sure for each in arrivals),
        alt=f"Planned load over {words.span(end)}: " + "; ".join(f"{lane.name}: {lane.says}" for lane in lanes),
    )


def _lane(name: str, slot: int | None, own: Sequence[Arrival], width: float) -> Lane:
    single = len(own) <= FEW
    if single:
        arrivals = tuple(Bar(_at(each.at_s, width), 0.0, 100.0, each.sure) for each in own)
        work = tuple(_work(each, width) for each in own)
    else:
        counts = [0] * BINS
        for each in own:
            counts[_place(each.at_s, width)] += 1
        most, sure = max(counts), all(each.sure for each in own)
        arrivals = tuple(_bin(place, count / most, sure) for place, count in enumerate(counts) if count)
        work = ()
    return Lane(name, slot, _says(own), single, work, arrivals)


def _work(each: Arrival, width: float) -> Bar:
    at = _at(each.at_s, width)
    return Bar(at, min(max(0.2, _at(each.work_s, width)), 100.0 - at), 45.0, each.sure)


def _says(own: Sequence[Arrival]) -> str:
    if not own:
        return "no request"
    count = f"{words.whole(len(own))} request{'s' if len(own) != 1 else ''}"
    return (
        f"{count}, {_range([each.prompt for each in own])} new prompt tokens, {_range([each.output for each in own])} generated"
    )


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return words.whole(low) if low == high else f"{words.whole(low)} to {words.whole(high)}"


def _shares(arrivals: Sequence[Arrival], width: float) -> list[float]:
    seconds = [0.0] * BINS
    for each in arrivals:
        seconds[_place(each.at_s, width)] += each.work_s
    return [each / (width / BINS) for each in _spread(seconds, width / BINS)]


def _spread(seconds: Sequence[float], length: float) -> list[float]:
    """A stretch with more work than it has time keeps up to MOST_SHARE of it, and hands the rest on, as a queue does."""
    left, found = 0.0, []
    for each in seconds:
        left += each
        told = min(left, MOST_SHARE * length)
        found.append(told)
        left = max(0.0, left - length) if left > length else 0.0
    return found


def _place(at_s: float, width: float) -> int:
    return min(BINS - 1, int(at_s / width * BINS))


def _at(seconds: float, width: float) -> float:
    return round(seconds / width * 100.0, 3)


def _bin(place: int, share: float, sure: bool = True) -> Bar:
    return Bar(round(place * 100.0 / BINS, 3), round(100.0 / BINS, 3), round(share * 100.0, 2), sure)
