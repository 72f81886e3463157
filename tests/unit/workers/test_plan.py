"""The plan of a load: the same for the same seed, and what its scenario says."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.load.arrivals import Segment, moments
from workers.load.draws import Draws
from workers.load.edges import counted
from workers.load.plan import make_plan
from workers.load.planned import AnswerOf, Piece, Plan, Planned, Scaling
from workers.scenarios import library
from workers.scenarios.parts import Constant, Gamma, Poisson, Ramp, Stages
from workers.scenarios.streams import LoadScenario

NAMES = [name for name in library.names() if name != "warm-behind-cold"]


def scenario(*streams: dict[str, Any], **fields: Any) -> LoadScenario:
    whole = {"name": "x", "version": 1, "title": "t", "summary": "s", "written_for": 1000.0, "streams": list(streams)}
    return LoadScenario.model_validate({**whole, **fields})


def stream(name: str = "one", **fields: Any) -> dict[str, Any]:
    plain = {"name": name, "arrivals": {"kind": "at", "times": [0.0]}, "prompt": {"tokens": 100}, "output": 8}
    return {**plain, **fields}


def planned(name: str, seed: int, scaling: Scaling, label: str = "") -> Plan:
    found = library.find(name)
    assert isinstance(found, LoadScenario)
    return make_plan(found, seed, scaling, library.files_of(found), label)


def fresh(plan: Plan) -> set[str]:
    """Labels of all text that is not warm."""
    pieces = [piece for each in plan.requests for piece in each.pieces if isinstance(piece, Piece)]
    return {piece.label for piece in pieces if not piece.label.startswith("warm:")}


# -- same seed, same load ---------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 1 << 48), st.floats(0.01, 4), st.floats(0.1, 4))
def test_the_same_seed_gives_the_same_load(name: str, seed: int, tokens: float, time: float) -> None:
    assert planned(name, seed, Scaling(tokens, time)) == planned(name, seed, Scaling(tokens, time))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 1 << 48))
def test_blocks_of_a_pair_differ_in_their_text_alone(name: str, seed: int) -> None:
    a, b = planned(name, seed, Scaling(), "1A"), planned(name, seed, Scaling(), "1B")
    assert [(each.at_s, each.n_prompt, each.n_predict, each.leave) for each in a.requests] == [
        (each.at_s, each.n_prompt, each.n_predict, each.leave) for each in b.requests
    ]
    assert not fresh(a) & fresh(b)
    assert a.warming == b.warming


def test_another_seed_gives_another_load() -> None:
    assert planned("mixed-chat", 1, Scaling()) != planned("mixed-chat", 2, Scaling())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 1 << 48), st.floats(0.005, 4))
def test_every_plan_can_be_run(name: str, seed: int, tokens: float) -> None:
    """Numbers are places; each request has a moment or an earlier one that it follows, and no answer before it is asked for."""
    plan = planned(name, seed, Scaling(tokens))
    assert [each.number for each in plan.requests] == list(range(len(plan.requests)))
    for each in plan.requests:
        assert (each.at_s is None) == bool(each.after)
        assert all(before < each.number for before in each.after)
        assert each.n_prompt >= 1
        assert each.n_predict >= 1
        answers = [piece.request for piece in each.pieces if isinstance(piece, AnswerOf)]
        assert all(answer < each.number for answer in answers)
        assert set(answers) <= ({*each.after} | {before for after in each.after for before in _answers(plan.requests[after])})


def _answers(request: Planned) -> set[int]:
    return {piece.request for piece in request.pieces if isinstance(piece, AnswerOf)}


def test_one_streams_settings_do_not_shift_another() -> None:
    chat = stream(
        "chat", arrivals={"kind": "poisson", "rate": 5.0, "for_s": 10.0}, prompt={"tokens": {"range": {"min": 1, "max": 999}}}
    )
    alone = make_plan(scenario(chat), 7, Scaling())
    beside = make_plan(scenario(stream("other"), chat), 7, Scaling())
    told = [(each.at_s, each.n_prompt) for each in beside.requests if each.stream == "chat"]
    assert told == [(each.at_s, each.n_prompt) for each in alone.requests]


# -- draws ------------------------------------------------------------------------------------------------------------


def test_draws_are_these_numbers_on_every_machine() -> None:
    draws = Draws("slotboard")
    assert [round(draws.uniform(), 12) for _ in range(3)] == UNIFORM
    assert Draws("slotboard").uniform() != Draws("slotboard2").uniform()


UNIFORM = [0.898996999815, 0.665690896518, 0.732074811737]


def moments_of(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / len(values)


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gamma_has_its_mean_and_variance(shape: float) -> None:
    draws = Draws(f"gamma {shape}")
    mean, variance = moments_of([draws.gamma(shape) for _ in range(40_000)])
    assert mean == pytest.approx(shape, rel=0.05)
    assert variance == pytest.approx(shape, rel=0.1)


def test_exponential_and_normal_have_theirs() -> None:
    draws = Draws("others")
    mean, variance = moments_of([draws.exponential() for _ in range(40_000)])
    assert mean == pytest.approx(1, rel=0.03)
    assert variance == pytest.approx(1, rel=0.08)
    mean, variance = moments_of([draws.normal() for _ in range(40_000)])
    assert mean == pytest.approx(0, abs=0.02)
    assert variance == pytest.approx(1, rel=0.04)


@given(st.integers(-5, 5), st.integers(0, 8))
def test_whole_numbers_stay_within_both_ends(low: int, width: int) -> None:
    draws = Draws(f"{low} {width}")
    assert {draws.whole(low, low + width) for _ in range(200)} <= set(range(low, low + width + 1))


# -- arrivals ---------------------------------------------------------------------------------------------------------


def test_a_constant_rate_is_even_from_the_first_moment_on() -> None:
    assert moments(Constant(kind="constant", rate=4.0, for_s=1.0), Draws("x")) == pytest.approx([0, 0.25, 0.5, 0.75])


def test_a_poisson_stream_has_its_rate_and_exponential_gaps() -> None:
    found = moments(Poisson(kind="poisson", rate=50.0, for_s=400.0), Draws("x"))
    gaps = [after - before for before, after in pairwise(found)]
    mean, variance = moments_of(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.03)
    assert variance == pytest.approx(mean**2, rel=0.1)


def test_gamma_arrivals_have_the_deviation_asked_for() -> None:
    found = moments(Gamma(kind="gamma", rate=50.0, for_s=400.0, cv=2.0), Draws("x"))
    mean, variance = moments_of([after - before for before, after in pairwise(found)])
    assert mean == pytest.approx(1 / 50, rel=0.06)
    assert math.sqrt(variance) / mean == pytest.approx(2, rel=0.1)


def test_an_even_ramp_follows_its_integral() -> None:
    """From 0 to 10 a second in 2 s: 10 requests in all, the n-th when 2.5 t^2 = n."""
    found = moments(Ramp(kind="ramp", from_rate=0.0, to_rate=10.0, for_s=2.0, spacing="even"), Draws("x"))
    assert found == pytest.approx([math.sqrt(n / 2.5) for n in range(10)])


def test_even_stages_keep_their_rates() -> None:
    stages = [{"rate": 2.0, "for_s": 1.0}, {"rate": 0.0, "for_s": 1.0}, {"rate": 4.0, "for_s": 1.0}]
    found = moments(Stages.model_validate({"kind": "stages", "spacing": "even", "stages": stages}), Draws("x"))
    assert found == pytest.approx([0, 0.5, 2, 2.25, 2.5, 2.75])


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0.1, 50), st.floats(0, 1))
def test_a_segments_moment_is_the_inverse_of_its_integral(start: float, end: float, seconds: float, share: float) -> None:
    segment = Segment(start, end, seconds)
    count = share * segment.requests
    at = segment.moment(count)
    assert 0 <= at <= seconds
    assert start * at + (end - start) / (2 * seconds) * at * at == pytest.approx(count, rel=1e-6, abs=1e-6)


def test_too_many_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1,000,000"):
        moments(Constant(kind="constant", rate=1e6, for_s=100.0), Draws("x"))


# -- chains, sizes, edges ---------------------------------------------------------------------------------------------


def test_users_of_a_closed_loop_follow_themselves_and_levels_follow_one_another() -> None:
    levels = [{"concurrency": 1, "requests": 2}, {"concurrency": 2, "requests": 4}]
    plan = make_plan(scenario(stream(arrivals={"kind": "closed", "stages": levels, "think_s": 3.0})), 1, Scaling(1, 0.5))
    assert [each.after for each in plan.requests] == [(), (0,), (1,), (1,), (2,), (3,)]
    assert [each.think_s for each in plan.requests] == [0, 1.5, 0, 0, 1.5, 1.5]
    assert [each.stage for each in plan.requests] == [0, 0, 1, 1, 1, 1]


def test_a_turn_has_all_before_it_and_the_answers() -> None:
    plan = make_plan(scenario(stream(turns=3, turn_think_s=2.0)), 1, Scaling())
    first, second, third = plan.requests
    assert third.pieces[:3] == second.pieces
    assert second.pieces[:1] == first.pieces
    assert second.pieces[1] == AnswerOf(0, 8)
    assert [each.n_prompt for each in plan.requests] == [100, 208, 316]
    assert [(each.after, each.think_s) for each in plan.requests] == [((), 0), ((0,), 2), ((1,), 2)]


def test_warm_contexts_are_asked_for_once_each_and_come_first() -> None:
    agents = stream(
        arrivals={"kind": "closed", "concurrency": 3, "requests": 6},
        prompt={"tokens": 10, "warm": {"tokens": 500, "contexts": 2}},
    )
    plan = make_plan(scenario(agents), 1, Scaling(2))
    assert [(each.pieces, each.n_predict) for each in plan.warming] == [((Piece(f"warm:one:{n}", 1000),), 1) for n in (0, 1)]
    assert [each.pieces[0] for each in plan.requests[:3]] == [Piece(f"warm:one:{n}", 1000) for n in (0, 1, 0)]


def test_a_shared_prefix_is_the_same_text_within_its_group() -> None:
    prefixed = {"kind": "constant", "rate": 10.0, "for_s": 4.0}
    plan = make_plan(
        scenario(
            stream("a", arrivals=prefixed, prompt={"tokens": 10, "prefix": {"tokens": 50, "groups": 3, "name": "system"}}),
            stream("b", prompt={"tokens": 10, "prefix": {"tokens": 50, "name": "system"}}),
        ),
        1,
        Scaling(),
    )
    first = {each.pieces[0] for each in plan.requests}
    assert first == {Piece(f":prefix:system:{group}", 50) for group in range(3)}


def test_scaling_leaves_something_to_schedule_and_fitting_keeps_the_weight() -> None:
    small = Scaling(0.001)
    assert (small.prompt(18_000), small.prompt(5), small.output(64), small.output(1)) == (18, 5, 4, 1)
    assert Scaling(0.0001).prompt(18_000) == 16
    assert Scaling.fitted(0.5, written_for=4000, measured=1000) == Scaling(0.5, 2.0)
    assert Scaling.fitted(0.25, written_for=4000, measured=1000).time == 1.0


def test_times_rates_and_limits_are_stretched_alike() -> None:
    slow = stream(arrivals={"kind": "constant", "rate": 2.0, "for_s": 2.0}, slo={"ttft_s": 1.0}, cancel_after={"seconds": 0.5})
    plan = make_plan(scenario(slow), 1, Scaling(1, 3))
    assert [each.at_s for each in plan.requests] == pytest.approx([0, 1.5, 3, 4.5])
    assert plan.slos["one"].ttft_s == 3
    assert {each.leave.seconds for each in plan.requests if each.leave} == {1.5}


def test_a_share_of_cancels_is_about_that_share() -> None:
    half = stream(arrivals={"kind": "constant", "rate": 100.0, "for_s": 20.0}, cancel_after={"tokens": 4, "share": 0.5})
    plan = make_plan(scenario(half), 1, Scaling())
    assert 900 < sum(each.leave is not None for each in plan.requests) < 1100


@pytest.mark.parametrize(
    ("edges", "kept"),
    [
        ({}, range(10)),
        ({"warm_up": {"requests": 2}, "cool_down": {"requests": 3}}, range(2, 7)),
        ({"warm_up": {"share": 0.2}}, range(2, 10)),
        ({"warm_up": {"seconds": 0.25}, "cool_down": {"seconds": 0.15}}, range(3, 8)),
        ({"warm_up": {"requests": 30}}, range(0)),
    ],
)
def test_the_declared_edges_do_not_count(edges: dict[str, Any], kept: range) -> None:
    ten = scenario(stream(arrivals={"kind": "constant", "rate": 10.0, "for_s": 1.0}), exclude=edges)
    assert counted(make_plan(ten, 1, Scaling(1, 2)), ten, Scaling(1, 2)) == set(kept)


def test_the_edges_of_chained_requests_are_shares_of_their_order() -> None:
    chained = scenario(stream(arrivals={"kind": "closed", "concurrency": 2, "requests": 8}), exclude={"warm_up": {"share": 0.25}})
    assert len(counted(make_plan(chained, 1, Scaling()), chained, Scaling())) == 6


# -- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("speed", "last_s"), [(1.0, 30.0), (2.0, 15.0), (0.5, 60.0)])
def test_a_playback_speed_above_one_is_faster(speed: float, last_s: float) -> None:
    trace = {"kind": "trace", "file": "t.csv", "format": "burstgpt", "playback_speed": speed}
    lines = "Timestamp,Request tokens,Response tokens\n100,40,5\n130,50,6\n"
    plan = make_plan(scenario({"name": "one", "arrivals": trace}), 1, Scaling(), {"t.csv": lines})
    assert [(each.at_s, each.n_prompt, each.n_predict) for each in plan.requests] == [(0, 40, 5), (last_s, 50, 6)]


def test_equal_blocks_of_a_mooncake_trace_are_equal_text() -> None:
    trace = {"kind": "trace", "file": "t", "format": "mooncake"}
    rows = [
        '{"timestamp":0,"input_length":1100,"output_length":5,"hash_ids":[1,2,3]}',
        '{"timestamp":10,"input_length":700,"output_length":5,"hash_ids":[1,9]}',
    ]
    first, second = make_plan(scenario({"name": "one", "arrivals": trace}), 1, Scaling(), {"t": "\n".join(rows)}).requests
    assert [piece.tokens for piece in first.pieces] == [512, 512, 76]
    assert [piece.tokens for piece in second.pieces] == [512, 188]
    assert first.pieces[0] == second.pieces[0]
    assert first.pieces[1] != second.pieces[1]
