"""How a plan is divided among shards. Pure: same plan, same number of shards, same parts.

Requests that follow one another (a conversation, a user of a closed loop) stay together, since what is due next depends on an
answer that one shard alone has. Such chains, in the order of their first requests, go to the shards in turn, so each stream is
divided evenly and the parts together are the whole plan, request for request.

The next stage of a closed loop waits for every user of the one before. Its users are chains of their own, so each shard has as
many of them, to one, as every other, and those of one shard wait for those of all: what ended is told from shard to shard
(`Share`, `workers.handing`), and at each moment as many requests are under way as the stage declares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workers.load.planned import Plan


def owners(plan: Plan, count: int) -> list[int]:
    """The shard, from 0, of each request by its number."""
    chain_of = _chains(plan)
    shard_of: dict[int, int] = {}
    for chain in chain_of:
        shard_of.setdefault(chain, len(shard_of) % count)
    return [shard_of[chain] for chain in chain_of]


@dataclass(frozen=True, slots=True)
class Share:
    """What one shard sends. `awaited`: requests of others for which some of its own wait; `told`: those of its own for which some
    of others wait.
    """

    plan: Plan
    awaited: frozenset[int] = frozenset()
    told: frozenset[int] = frozenset()


def share(plan: Plan, shard: int, count: int) -> Share:
    """Of shard `shard`, from 0, of `count`. Warming is not divided: who runs the load does it beforehand."""
    if count == 1:
        return Share(plan)
    whose = owners(plan, count)
    mine = tuple(request for request in plan.requests if whose[request.number] == shard)
    awaited: set[int] = set()
    told: set[int] = set()
    for request in plan.requests:
        for before in request.after:
            if whose[before] != whose[request.number]:
                (awaited if whose[request.number] == shard else told).add(before)
    told = {number for number in told if whose[number] == shard}
    return Share(replace(plan, requests=mine, warming=()), frozenset(awaited), frozenset(told))


def sizes(plan: Plan, count: int) -> list[int]:
    """Requests of each shard."""
    whose = owners(plan, count)
    return [whose.count(shard) for shard in range(count)]


def _chains(plan: Plan) -> list[int]:
    """For each request the first one of its chain; union and find over what follows what within a stage."""
    first = list(range(len(plan.requests)))

    def root(number: int) -> int:
        while first[number] != number:
            first[number] = first[first[number]]
            number = first[number]
        return number

    for request in plan.requests:
        for before in request.after:
            if plan.requests[before].stage != request.stage:
                continue
            low, high = sorted((root(before), root(request.number)))
            first[high] = low
    return [root(number) for number in range(len(first))]
