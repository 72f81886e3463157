"""The grammar of assertions and what they say of a result."""

from __future__ import annotations

from typing import Any

import pytest

from workers import gating
from workers.analysis.assertions import AssertionFault, check_names, judge, parse
from workers.analysis.load import BlockLoad, compare
from workers.measure_rows import measure_row
from workers.scenarios import library

SLOW = {("victim", "ttft_mean"): 3.0, ("victim", "ttft_p50"): 3.0, ("client:shop 1.b", "goodput"): 2.0, ("", "makespan"): 10.0}
FAST = {("victim", "ttft_mean"): 1.0, ("victim", "ttft_p50"): 1.0, ("client:shop 1.b", "goodput"): 3.0, ("", "makespan"): 10.2}
JITTER = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0)


def rows(n: int = 6) -> list[dict[str, Any]]:
    fast = [{key: value * factor for key, value in FAST.items()} for factor in JITTER[:n]]
    return [measure_row(measure) for measure in compare([(BlockLoad(SLOW, {}), BlockLoad(each, {})) for each in fast])]


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("victim.ttft.p50 ratio>=2.5", True),
        ("victim.ttft ratio >= 2.5 surely", True),
        ("victim.ttft.p50 ratio>3.1", False),
        ("victim.ttft.p50 ratio>=3 surely", False),
        ("victim.ttft.p50 b/a<=0.34", True),
        ("victim.ttft.mean diff<=-1900ms", True),
        ("victim.ttft.mean diff<=-2.1s", False),
        ("victim.ttft.p50 change<=-60%", True),
        ("victim.ttft.p50 B<=1.05", True),
        ("victim.ttft.p50 b<=1.0 surely", False),
        ("victim.ttft.p50 a<3", False),
        ("victim.ttft.p50 verdict=faster", True),
        ("victim.ttft.p50 verdict!=faster", False),
        ("makespan verdict=no-difference-shown", True),
        ("makespan change<=5", True),
        ("client:shop 1.b.goodput ratio>=1.4", True),
        ("client:shop 1.b.goodput verdict=faster", True),
    ],
)
def test_what_is_met(text: str, met: bool) -> None:
    answer = judge(parse(text), rows())
    assert answer.met is met
    assert answer.said.startswith(f"{'met' if met else 'not met'}: {text}: ")
    assert answer.n == 6


def test_the_line_gives_figures_interval_and_both_arms() -> None:
    said = judge(parse("victim.ttft.p50 ratio>=2.5"), rows()).said
    assert said == "met: victim.ttft.p50 ratio>=2.5: 3 (2.941 to 3.061); A 3 s, B 1 s, 6 pairs, faster"


def test_with_few_pairs_the_figure_decides_and_nothing_is_sure() -> None:
    assert judge(parse("victim.ttft.p50 ratio>=2.5"), rows(2)).met
    assert not judge(parse("victim.ttft.p50 ratio>=2.5 surely"), rows(2)).met
    assert "(no interval)" in judge(parse("victim.ttft.p50 ratio>=2.5"), rows(2)).said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no assertion"),
        ("victim.ttft.p50", "it needs a measure, a quantity"),
        ("victim.ttft.p50 ratio=2", "compared with >=, <=, >, <, not with ="),
        ("victim.ttft.p50 ratio<=1.05", "would meet an upper bound. Write how much worse"),
        ("victim.speed.p50 ratio>=2", "'speed' is no metric; known are ttft"),
        ("victim.ttft.p90 ratio>=2", "'p90' is no metric"),
        ("victim.ttft.p50 ratio>=2s", "ratio of ttft has no unit 's'"),
        ("victim.goodput diff>=2ms", "diff of goodput has no unit 'ms'"),
        ("victim.ttft.p50 diff>=fast", "'fast' is no number"),
        ("victim.ttft.p50 verdict=quicker", "one of: faster, slower"),
        ("victim.ttft.p50 verdict>=faster", "compared with = or !="),
    ],
)
def test_what_is_not_in_the_grammar_is_told(text: str, told: str) -> None:
    with pytest.raises(AssertionFault) as caught:
        parse(text)
    assert told in str(caught.value)


def test_what_the_result_does_not_have_is_told_with_what_it_has() -> None:
    with pytest.raises(AssertionFault, match=r"no victim\.ttft\.p95, but mean, p50\. A 95th percentile needs 20 values"):
        judge(parse("victim.ttft.p95 diff<=0"), rows())
    with pytest.raises(AssertionFault, match=r"no victim\.itl\.p50; it has client:shop 1\.b\.goodput, makespan, victim\.ttft"):
        judge(parse("victim.itl.p50 diff<=0"), rows())


def test_whom_the_scenario_does_not_have_is_told_beforehand() -> None:
    whos = gating.whos(library.find("victim-and-attacker"))
    check_names([parse("victim.ttft.p50 diff<=0"), parse("client:attacker.e2e diff<=0"), parse("makespan diff<=0")], whos)
    with pytest.raises(AssertionFault, match="streams are attacker, victim; clients are client:attacker, client:victim"):
        check_names([parse("short.ttft.p50 diff<=0")], whos)
    check_names([parse("short.wall.p50 ratio>=2.5")], gating.whos(library.find("warm-behind-cold")))


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("A,B", ({"prefill_order": "physical"}, {"prefill_order": "rotating"})),
        ("B, B", ({"prefill_order": "rotating"}, {"prefill_order": "rotating"})),
        ("physical,barrier", ({"prefill_order": "physical"}, {"phase": "barrier"})),
        ("fair+decode_share=0.5,prefill_chunk=null", ({"prefill_order": "fair", "decode_share": 0.5}, {"prefill_chunk": None})),
        ("as-is,as-is", ({}, {})),
        ("as-is,barrier", ({}, {"phase": "barrier"})),
    ],
)
@pytest.mark.parametrize("scenario", ["victim-and-attacker", "warm-behind-cold"])
def test_arms_in_few_words(scenario: str, text: str, arms: tuple[Any, Any]) -> None:
    assert gating.arms_of(text, library.find(scenario)) == arms


@pytest.mark.parametrize("text", ["A", "A,B,A", "A,", "sideways,B", "physical+prefill_order=fair,B", "=3,B"])
def test_arms_that_are_none_are_told(text: str) -> None:
    with pytest.raises(gating.ArmFault):
        gating.arms_of(text, library.find("victim-and-attacker"))
