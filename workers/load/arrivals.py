"""When requests arrive: moments in seconds from the start of a stream, for arrivals that do not wait for answers. Pure.

All of them are one construction: gaps with a mean of 1 (even, exponential, gamma) are added up, and each sum u becomes the
moment t at which the rate's integral from 0 to t is u. For a constant rate that is the textbook process; for a rate that
changes it is the inhomogeneous one (Cinlar's time change).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.load.draws import Draws
from workers.scenarios.parts import At, Constant, Gamma, Poisson, Ramp, Search, Stages

MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A rate that goes in a straight line from `start` to `end` requests a second within `seconds`."""

    start: float
    end: float
    seconds: float

    @property
    def requests(self) -> float:
        return (self.start + self.end) / 2.0 * self.seconds

    def moment(self, count: float) -> float:
        """When `count` requests of it have come: the root of start * t + (end - start) / (2 * seconds) * t^2 = count."""
        slope = (self.end - self.start) / self.seconds
        root = math.sqrt(max(0.0, self.start * self.start + 2.0 * slope * count))
        if count <= 0:
            return 0.0
        return min(self.seconds, 2.0 * count / (self.start + root)) if self.start + root > 0 else self.seconds


type OpenLoop = At | Constant | Poisson | Gamma | Ramp | Stages | Search


def moments(arrivals: OpenLoop, draws: Draws) -> list[float]:
    """In order. ValueError when there would be more than a million."""
    match arrivals:
        case At():
            return sorted(arrivals.times)
        case Constant():
            return _along([Segment(arrivals.rate, arrivals.rate, arrivals.for_s)], lambda: 1.0, first=0.0)
        case Poisson():
            return _along([Segment(arrivals.rate, arrivals.rate, arrivals.for_s)], draws.exponential)
        case Gamma():
            shape = 1.0 / (arrivals.cv * arrivals.cv)
            return _along([Segment(arrivals.rate, arrivals.rate, arrivals.for_s)], lambda: draws.gamma(shape) / shape)
        case Ramp():
            segments = [Segment(arrivals.from_rate, arrivals.to_rate, arrivals.for_s)]
        case Search():  # its first try; the run plans the others by what came of those before
            segments = [Segment(arrivals.from_rate, arrivals.from_rate, arrivals.for_s)]
        case Stages():
            segments = [Segment(stage.rate, stage.rate, stage.for_s) for stage in arrivals.stages]
    return _along(
        segments,
        (lambda: 1.0) if arrivals.spacing == "even" else draws.exponential,
        first=0.0 if arrivals.spacing == "even" else None,
    )


def _along(segments: Sequence[Segment], gap: Callable[[], float], first: float | None = None) -> list[float]:
    """`first`: the sum at which the first request comes; None draws it like any gap."""
    if sum(segment.requests for segment in segments) > MOST_REQUESTS:
        raise ValueError(f"These arrivals would be more than {MOST_REQUESTS:,} requests.")
    found: list[float] = []
    count, begun = gap() if first is None else first, 0.0
    for segment in segments:
        while count < segment.requests:
            found.append(begun + segment.moment(count))
            count += gap()
        count -= segment.requests
        begun += segment.seconds
    return found
