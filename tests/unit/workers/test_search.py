"""The search for a rate, against servers that carry exactly so much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.load import search
from workers.load.plan import make_plan
from workers.load.planned import Scaling
from workers.load.search import Bracket, Try
from workers.scenarios.parts import Search
from workers.scenarios.reading import read
from workers.scenarios.schema import ScenarioError


def form(**fields: object) -> Search:
    return Search.model_validate({"kind": "search", "from_rate": 1.0, "for_s": 5.0, **fields})


def tried(capacity: float, asked: Search) -> list[Try]:
    tries: list[Try] = []
    while (rate := search.next_rate(asked, tries)) is not None:
        good = 100 if rate <= capacity else 50
        tries.append(Try(rate, 100, good, search.carried(asked, 100, good)))
    return tries


def test_it_doubles_and_then_halves_the_gap() -> None:
    tries = tried(5.0, form(precision=0.1))
    assert [round(each.rate, 3) for each in tries] == [1, 2, 4, 8, 5.657, 4.757, 5.187]
    found = search.bracket(tries)
    assert [found.low, found.high] == pytest.approx([4.757, 5.187], abs=1e-3)


@given(st.floats(0.05, 5000), st.integers(2, 40))
def test_the_bracket_holds_the_capacity_and_the_tries_are_bounded(capacity: float, most: int) -> None:
    tries = tried(capacity, form(tries=most))
    assert 1 <= len(tries) <= most
    found = search.bracket(tries)
    assert found.low is None or found.low <= capacity
    assert found.high is None or found.high > capacity
    if len(tries) < most and found.high is not None:
        assert found.low is not None
        assert found.high / found.low <= 1.1


def test_a_server_that_carries_all_ends_at_the_top_and_one_that_carries_nothing_has_no_lower_end() -> None:
    assert [each.rate for each in tried(1e9, form(most_rate=6.0))] == [1.0, 2.0, 4.0, 6.0]
    assert search.bracket(tried(1e9, form(most_rate=6.0))) == Bracket(6.0, None)
    assert search.bracket(tried(0.0, form(tries=3))) == Bracket(None, 0.25)


def test_a_rate_above_one_that_was_not_carried_does_not_count() -> None:
    """A disturbance may fail a rate below one that is carried: then the lower one is the end."""
    assert search.bracket([Try(1, 9, 9, True), Try(2, 9, 1, False), Try(3, 9, 9, True)]) == Bracket(1, 2)


def test_nothing_answered_is_not_carried() -> None:
    assert search.carried(form(), 0, 0) is False
    assert search.carried(form(share=0.5), 2, 1) is True


TEXT = """
name: mine
version: 1
title: t
summary: s
written_for: 1000
streams:
  - name: one
    arrivals: {kind: search, from_rate: 2, for_s: 4, spacing: even}
    prompt: {tokens: 10}
    output: 2
    slo: {ttft_s: 1}
"""


def test_a_try_is_the_scenario_at_one_rate() -> None:
    scenario = read(TEXT)
    found = search.search_of(scenario)
    assert found is not None
    assert found[0] == "one"
    assert len(make_plan(scenario, 1, Scaling()).requests) > 0  # its first try
    plan = search.staged(make_plan(search.at_rate(scenario, 5.0), 1, Scaling()), 3)
    assert [request.at_s for request in plan.requests] == [pytest.approx(n / 5) for n in range(20)]
    assert {request.stage for request in plan.requests} == {3}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("    slo: {ttft_s: 1}\n", "", "needs an slo to search by"),
        ("from_rate: 2", "from_rate: 2, most_rate: 1", "begins above its most_rate"),
    ],
)
def test_what_cannot_be_searched_is_said(old: str, new: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        read(TEXT.replace(old, new))


def test_one_stream_can_search() -> None:
    second = TEXT[TEXT.index("  - name") :].replace("one", "two")
    with pytest.raises(ScenarioError, match="has two streams that search"):
        read(TEXT + second)
