"""A typical request of each stream, alone on the server: what slowdowns are measured against. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workers.load.planned import Plan, Planned


def alone_plan(plan: Plan) -> Plan:
    """One request of each stream, one after the other: a first turn with as many tokens, asked and generated, as the median one.

    What is pinned, adapted and warm stays so; nobody leaves early.
    """
    streams: dict[str, list[Planned]] = {}
    for request in plan.requests:
        if request.turn == 0:
            streams.setdefault(request.stream, []).append(request)
    chosen = [_typical(requests) for requests in streams.values()]
    return replace(plan, requests=tuple(_chained(request, number) for number, request in enumerate(chosen)))


def _typical(requests: Sequence[Planned]) -> Planned:
    ordered = sorted(requests, key=lambda each: (each.n_prompt + each.n_predict, each.number))
    return ordered[(len(ordered) - 1) // 2]


def _chained(request: Planned, number: int) -> Planned:
    return replace(
        request,
        number=number,
        at_s=None if number else 0.0,
        after=(number - 1,) if number else (),
        think_s=0.0,
        not_after_s=None,
        leave=None,
    )
