"""What a plan looks like before it is sent, and about how long it takes on a server of a known speed. Pure.

The server is taken to do one request after the other, first come first served, with a generated token weighing as much as
GENERATED_WEIGHT prompt tokens. That is not how it batches; it is enough to say when the next request of a closed loop comes.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

from workers.load.planned import AnswerOf, File, Plan, Planned
from workers.scenarios.parts import At, Closed, Constant, Gamma, Poisson, Ramp, Search, Stages, Trace
from workers.scenarios.streams import LoadScenario, Stream

GENERATED_WEIGHT = 8.0
MOST_DRAWN = 20_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """`at_s` from the load's start; `sure`: the plan says it, else it hangs on answers. `work_s`: alone on the server."""

    stream: str
    at_s: float
    sure: bool
    work_s: float
    prompt: int  # new tokens, without what a cache holds by then
    output: int


@dataclass(frozen=True, slots=True)
class Preview:
    """By time. `lasts_s`: until everything is answered."""

    arrivals: tuple[Arrival, ...]
    lasts_s: float


def count_of(scenario: LoadScenario) -> float:
    """About how many requests it plans, known without planning them."""
    return sum(_arrivals(stream) * stream.turns for stream in scenario.streams)


def _arrivals(stream: Stream) -> float:
    arrivals = stream.arrivals
    match arrivals:
        case At():
            return len(arrivals.times)
        case Closed():
            return sum(level.requests for level in arrivals.levels)
        case Search():  # its first try
            return arrivals.from_rate * arrivals.for_s
        case Constant() | Poisson() | Gamma():
            return arrivals.rate * arrivals.for_s
        case Ramp():
            return (arrivals.from_rate + arrivals.to_rate) / 2.0 * arrivals.for_s
        case Stages():
            return sum(stage.rate * stage.for_s for stage in arrivals.stages)
        case Trace():
            return arrivals.limit


def preview(plan: Plan, speed: float) -> Preview:
    """`speed` in prompt tokens a second, above 0."""
    followers: dict[int, list[Planned]] = defaultdict(list)
    waits = {each.number: len(each.after) for each in plan.requests}
    for each in plan.requests:
        for before in each.after:
            followers[before].append(each)
    seen = {piece.label for each in plan.warming for piece in each.pieces if not isinstance(piece, AnswerOf | File)}
    due = [(each.at_s, each.number, True) for each in plan.requests if each.at_s is not None]
    heapq.heapify(due)
    found: list[Arrival] = []
    free_s = 0.0
    while due:
        at_s, number, sure = heapq.heappop(due)
        request = plan.requests[number]
        late = request.not_after_s is not None and at_s > request.not_after_s
        new = 0 if late else _new_tokens(request, seen)
        work_s = 0.0 if late else (new + GENERATED_WEIGHT * request.n_predict) / speed
        end_s = at_s if late else max(at_s, free_s) + work_s
        if not late:
            free_s = end_s
            found.append(Arrival(request.stream, at_s, sure, work_s, new, request.n_predict))
        for follower in followers.get(number, ()):
            waits[follower.number] -= 1
            if waits[follower.number] == 0:
                heapq.heappush(due, (end_s + follower.think_s, follower.number, False))
    return Preview(tuple(found), max(free_s, max((each.at_s for each in found), default=0.0)))


def _new_tokens(request: Planned, seen: set[str]) -> int:
    """Of its prompt, those that no request before it had: equal labels are equal text."""
    new = 0
    for piece in request.pieces:
        match piece:
            case AnswerOf():
                continue
            case File():
                new += piece.tokens
            case _:
                new += 0 if piece.label in seen else piece.tokens
                seen.add(piece.label)
    return new
