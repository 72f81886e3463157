"""The search for the highest rate that a server carries: doubling until it does not, then halving the gap. Pure.

A rate is carried when at least `share` of its requests met all their limits. Each try is a load of its own, so the search is
bounded by a number of tries, and its result is a bracket: the highest rate carried, and the lowest one not carried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.load.planned import Plan
from workers.scenarios.parts import Constant, Poisson, Search
from workers.scenarios.streams import LoadScenario


@dataclass(frozen=True, slots=True)
class Try:
    """`rate`: requests a second, as the scenario writes them. `good` of `requests` met their limits."""

    rate: float
    requests: int
    good: int
    carried: bool


@dataclass(frozen=True, slots=True)
class Bracket:
    """`low`: the highest rate carried, below any that was not; None: none was. `high`: the lowest not carried; None: all were."""

    low: float | None
    high: float | None


def bracket(tries: Sequence[Try]) -> Bracket:
    high = min((each.rate for each in tries if not each.carried), default=None)
    low = max((each.rate for each in tries if each.carried and (high is None or each.rate < high)), default=None)
    return Bracket(low, high)


def next_rate(form: Search, tries: Sequence[Try]) -> float | None:
    """The rate of the next try; None when the search is over."""
    if not tries:
        return form.from_rate
    if len(tries) >= form.tries:
        return None
    found = bracket(tries)
    if found.high is None:
        assert found.low is not None
        return None if found.low >= form.most_rate else min(2.0 * found.low, form.most_rate)
    if found.low is None:
        return found.high / 2.0
    return None if found.high / found.low <= 1.0 + form.precision else math.sqrt(found.low * found.high)


def carried(form: Search, requests: int, good: int) -> bool:
    return requests > 0 and good >= form.share * requests


def search_of(scenario: LoadScenario) -> tuple[str, Search] | None:
    """The stream that searches, and how; None for a scenario without one."""
    return next(((each.name, each.arrivals) for each in scenario.streams if isinstance(each.arrivals, Search)), None)


def at_rate(scenario: LoadScenario, rate: float) -> LoadScenario:
    """The scenario with its search replaced by arrivals at one rate."""
    streams = []
    for stream in scenario.streams:
        if isinstance(form := stream.arrivals, Search):
            fixed = (
                Poisson(kind="poisson", rate=rate, for_s=form.for_s)
                if form.spacing == "poisson"
                else Constant(kind="constant", rate=rate, for_s=form.for_s)
            )
            stream = stream.model_copy(update={"arrivals": fixed})
        streams.append(stream)
    return scenario.model_copy(update={"streams": streams})


def staged(plan: Plan, stage: int) -> Plan:
    """With every request marked as one of a try."""
    return replace(plan, requests=tuple(replace(request, stage=stage) for request in plan.requests))
