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
    parts = [shards.part(whole, shard, count) for shard in range(count)]
    together = sorted((request for each in parts for request in each.requests), key=lambda request: request.number)
    assert together == list(whole.requests)
    assert shards.sizes(whole, count) == [len(each.requests) for each in parts]


@pytest.mark.parametrize("arrivals", [POISSON, CLOSED])
def test_no_request_waits_for_one_of_another_shard(arrivals: dict[str, Any]) -> None:
    whole = plan(arrivals, turns=3)
    for shard in range(3):
        mine = {request.number for request in shards.part(whole, shard, 3).requests}
        assert mine
        assert all(set(request.after) <= mine for request in whole.requests if request.number in mine)


def test_each_stream_is_divided_evenly() -> None:
    whole = plan(POISSON, {**POISSON, "rate": 30.0})
    for name in ("s0", "s1"):
        sizes = [sum(each.stream == name for each in shards.part(whole, shard, 4).requests) for shard in range(4)]
        assert max(sizes) - min(sizes) <= 1


def test_a_closed_loop_in_stages_stays_whole_since_its_stages_wait_for_every_user() -> None:
    levels = [{"concurrency": 1, "requests": 3}, {"concurrency": 4, "requests": 12}]
    assert shards.sizes(plan({"kind": "closed", "stages": levels}), 2) == [15, 0]


def test_warming_is_not_divided_and_one_shard_is_the_plan_itself() -> None:
    whole = plan(POISSON)
    assert shards.part(whole, 0, 1) is whole
    assert shards.part(whole, 1, 2).warming == ()
