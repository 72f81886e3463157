"""Numbers as an operator reads them: digits grouped from 10,000 up, a true minus sign, "2.9 to 3.3"."""

from __future__ import annotations

import math

MINUS = "\u2212"
TIMES = 1.25  # from this factor on a change is told in times, below it in per cent


def whole(value: float) -> str:
    rounded = round(value)
    text = f"{abs(rounded):,}" if abs(rounded) >= 10_000 else str(abs(rounded))
    return f"{MINUS}{text}" if rounded < 0 else text


def seconds(value: float | None) -> str:
    """Two or three digits that say something: 0.0023, 0.041, 0.17, 4.93, 23.4, 143; without the unit."""
    if value is None:
        return "not measured"
    size = abs(value)
    digits = 4 if 0 < size < 0.00995 else 3 if 0 < size < 0.0995 else 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:.{digits}f}" if digits else whole(value)


def signed(value: float) -> str:
    """As `seconds`, with its sign: "+0.17", "−1.09"; 0 for what rounds to it."""
    text = seconds(abs(value))
    if not float(text.replace(",", "")):
        return "0"
    return f"{'+' if value > 0 else MINUS}{text}"


def span(value: float) -> str:
    """A duration with its unit: "40 ms", "4.9 s", "41 min 40 s", "2 h 5 min"."""
    if value < 0.1:
        return f"{value * 1000:.0f} ms"
    if value < 59.5:
        return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def factor(value: float) -> str:
    """Two significant digits: 3.1, 21, 690."""
    if not math.isfinite(value) or value <= 0:
        return "not measured"
    digits = max(0, 1 - math.floor(math.log10(value)))
    rounded = round(value, 1 - math.floor(math.log10(value)))
    return f"{rounded:.{min(digits, 2)}f}" if digits else whole(rounded)


def percent(ratio: float) -> str:
    change = (ratio - 1) * 100
    if abs(change) < 0.05:
        return "0.0 %"
    size = f"{abs(change):.1f}" if abs(change) < 99.95 else whole(abs(change))
    return f"{'+' if change > 0 else MINUS}{size} %"


def _told(median: float) -> str:
    if median <= 1 / TIMES:
        return "sooner"
    return "later" if median >= TIMES else "percent"


#: what less and more of something is called: of a time, and of a rate
TIME, RATE = ("sooner", "later"), ("fewer", "as many")


def change(ratio: float | None, kind: tuple[str, str] = TIME) -> str:
    """B against A: "3.1 times sooner", "1.4 times later" or "+0.4 %"; of a rate "1.4 times as many"."""
    if ratio is None or ratio <= 0:
        return "not measured"
    told = _told(ratio)
    if told == "percent":
        return percent(ratio)
    return f"{factor(1 / ratio if told == 'sooner' else ratio)} times {kind[0] if told == 'sooner' else kind[1]}"


def interval(median: float | None, low: float | None, high: float | None) -> str:
    """The interval in the same terms as `change(median)`: "2.9 to 3.3" or "−0.8 to +1.6 %"; "" when there is none."""
    if median is None or low is None or high is None or low <= 0:
        return ""
    told = _told(median)
    if told == "sooner":
        return f"{factor(1 / high)} to {factor(1 / low)}"
    if told == "later":
        return f"{factor(low)} to {factor(high)}"
    return f"{percent(low).removesuffix(' %')} to {percent(high)}"
