"""Which requests of a plan are part of its result. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workers.load.planned import Plan, Scaling
from workers.scenarios.streams import Edge, LoadScenario


def counted(plan: Plan, scenario: LoadScenario, scaling: Scaling) -> frozenset[int]:
    """The requests that are part of the result: all but those that the scenario's declared rule excludes.

    Seconds are stretched as all times are, and compared with planned moments; a chained request has none, so seconds never
    exclude it.
    """
    kept: set[int] = set()
    for stream in scenario.streams:
        mine = [each for each in plan.requests if each.stream == stream.name]
        mine.sort(key=lambda each: (each.at_s is None, each.at_s, each.number))
        moments_s = [each.at_s for each in mine if each.at_s is not None]
        end_s = max(moments_s, default=0.0)
        first = _excluded(scenario.exclude.warm_up, len(mine), moments_s, scaling.time)
        last = _excluded(scenario.exclude.cool_down, len(mine), [end_s - at_s for at_s in moments_s], scaling.time)
        kept.update(each.number for each in mine[first : max(first, len(mine) - last)])
    return frozenset(kept)


def _excluded(edge: Edge | None, n: int, distances_s: Sequence[float], stretch: float) -> int:
    """How many requests lie within an edge; `distances_s` are the moments' distances from it."""
    if edge is None:
        return 0
    if edge.seconds is not None:
        return sum(1 for distance in distances_s if distance < edge.seconds * stretch)
    return edge.requests if edge.requests is not None else round((edge.share or 0.0) * n)
