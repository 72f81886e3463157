"""How a plan is divided among shards. Pure: same plan, same number of shards, same parts.

Requests that follow one another (a conversation, a user of a closed loop) stay together, since what is due next depends on an
answer that one shard alone has. Such chains, in the order of their first requests, go to the shards in turn, so each stream is
divided evenly and the parts together are the whole plan, request for request. A closed loop in stages is one chain: its next
stage waits for every user of the one before.
"""

from __future__ import annotations

from dataclasses import replace

from workers.load.planned import Plan


def owners(plan: Plan, count: int) -> list[int]:
    """The shard, from 0, of each request by its number."""
    chain_of = _chains(plan)
    shard_of: dict[int, int] = {}
    for chain in chain_of:
        shard_of.setdefault(chain, len(shard_of) % count)
    return [shard_of[chain] for chain in chain_of]


def part(plan: Plan, shard: int, count: int) -> Plan:
    """What shard `shard`, from 0, of `count` sends. Warming is not divided: who runs the load does it beforehand."""
    if count == 1:
        return plan
    whose = owners(plan, count)
    mine = tuple(request for request in plan.requests if whose[request.number] == shard)
    return replace(plan, requests=mine, warming=())


def sizes(plan: Plan, count: int) -> list[int]:
    """Requests of each shard."""
    whose = owners(plan, count)
    return [whose.count(shard) for shard in range(count)]


def _chains(plan: Plan) -> list[int]:
    """For each request the first one of its chain; union and find over what follows what."""
    first = list(range(len(plan.requests)))

    def root(number: int) -> int:
        while first[number] != number:
            first[number] = first[first[number]]
            number = first[number]
        return number

    for request in plan.requests:
        for before in request.after:
            low, high = sorted((root(before), root(request.number)))
            first[high] = low
    return [root(number) for number in range(len(first))]
