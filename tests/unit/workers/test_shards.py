"""A plan in parts: together it is the whole, and what belongs together stays together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.load import shards
from workers.load.plan import make_plan
from workers.load.planned import Plan, Scaling
from workers.scenarios.streams import LoadScenario


def plan(*arrivals: dict[str, Any], turns: int = 1) -> Plan:
    streams = [
        {"name": f"s{n}", "arrivals": each, "prompt": {"tokens": 20}, "output": 4, "turns": turns}
        for n, each in enumerate(arrivals)
    ]
    whole = {"name": "x", "version": 1, "title": "t", "summary": "s", "written_for": 1000.0, "streams": streams}
    return make_plan(LoadScenario.model_validate(whole), 7, Scaling())


POISSON = {"kind": "poisson", "rate": 20.0, "for_s": 3.0}
CLOSED = {"kind": "closed", "concurrency": 5, "requests": 33}


@given(st.integers(1, 9))
def test_the_parts_are_the_whole_request_for_request(count: int) -> None:
    whole = plan(POISSON, CLOSED, turns=2)
    parts = [shards.share(whole, shard, count).plan for shard in range(count)]
    together = sorted((request for each in parts for request in each.requests), key=lambda request: request.number)
    assert together == list(whole.requests)
    assert shards.sizes(whole, count) == [len(each.requests) for each in parts]


@pytest.mark.parametrize("arrivals", [POISSON, CLOSED])
def test_no_request_waits_for_one_of_another_shard(arrivals: dict[str, Any]) -> None:
    whole = plan(arrivals, turns=3)
    for shard in range(3):
        mine = {request.number for request in shards.share(whole, shard, 3).plan.requests}
        assert mine
        assert all(set(request.after) <= mine for request in whole.requests if request.number in mine)


def test_each_stream_is_divided_evenly() -> None:
    whole = plan(POISSON, {**POISSON, "rate": 30.0})
    for name in ("s0", "s1"):
        sizes = [sum(each.stream == name for each in shards.share(whole, shard, 4).plan.requests) for shard in range(4)]
        assert max(sizes) - min(sizes) <= 1


LEVELS = [{"concurrency": 1, "requests": 3}, {"concurrency": 4, "requests": 12}, {"concurrency": 7, "requests": 30}]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_users_of_each_stage_are_divided_evenly(count: int) -> None:
    """Each shard has the users of a stage, rounded up or down, and together they are as many as the stage declares."""
    whole = plan({"kind": "closed", "stages": LEVELS}, turns=2)
    whose = shards.owners(whole, count)
    for number, level in enumerate(LEVELS):
        mine = [each for each in whole.requests if each.stage == number]
        first = [each for each in mine if each.turn == 0][: level["concurrency"]]
        users = [sum(whose[each.number] == shard for each in first) for shard in range(count)]
        assert sum(users) == level["concurrency"]
        assert max(users) - min(users) <= 1
        for each in mine:  # a user, and a conversation, stays in its shard
            same = [before for before in each.after if whole.requests[before].stage == number]
            assert all(whose[before] == whose[each.number] for before in same)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_stage_waits_for_all_users_of_the_one_before_wherever_they_are(count: int) -> None:
    whole = plan({"kind": "closed", "stages": LEVELS})
    shares = [shards.share(whole, shard, count) for shard in range(count)]
    for each in shares:
        own = {request.number for request in each.plan.requests}
        waited = {before for request in each.plan.requests for before in request.after}
        assert each.awaited == waited - own
        assert each.told <= own
    assert set().union(*(each.awaited for each in shares)) == set().union(*(each.told for each in shares))
    assert any(each.awaited for each in shares) == (count > 1)


def test_warming_is_not_divided_and_one_shard_is_the_plan_itself() -> None:
    whole = plan(POISSON)
    assert shards.share(whole, 0, 1).plan is whole
    assert shards.share(whole, 1, 2).plan.warming == ()
