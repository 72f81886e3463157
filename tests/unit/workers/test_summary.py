from __future__ import annotations

import pytest

from workers.analysis import sentences, summary
from workers.analysis.summary import ArmTimes, Pair, Times


def make_arm(short: float, cold: float, wait: float = 0.2) -> ArmTimes:
    return ArmTimes(Times(short, wait, short - wait), Times(cold, 0.01, cold - 0.01), max(short + 2.0, cold))


def make_pairs(factors: list[float], cold: list[float] | None = None) -> list[Pair]:
    cold = cold or [1.0] * len(factors)
    return [
        Pair(number, make_arm(23.4, 25.4, wait=12.0), make_arm(23.4 / factor, 25.4 * change))
        for number, (factor, change) in enumerate(zip(factors, cold, strict=True), start=1)
    ]


EIGHT = make_pairs([2.8, 3.3, 3.0, 3.4, 2.9, 3.3, 3.0, 3.2], [0.986, 1.021, 1.006, 0.989, 1.018, 1.002, 1.02, 1.002])


def test_measures_come_in_the_page_order_with_their_spread() -> None:
    found = summary.measures(EIGHT)
    assert list(found) == ["short_wall", "short_wait", "short_prompt", "cold_wall", "cold_prompt", "makespan"]
    assert found["short_wall"].times_sooner == pytest.approx(3.098, abs=0.001)
    assert found["cold_wall"].verdict == "no difference shown"
    assert found["short_wall"].a is not None
    assert found["short_wall"].a.median == 23.4
    assert found["makespan"].label == "Both done"


def test_waits_below_50_ms_count_as_50_ms() -> None:
    pairs = [Pair(n, make_arm(2.0, 3.0, wait=1.0), make_arm(2.0, 3.0, wait=0.001)) for n in range(1, 7)]
    ratio = summary.measures(pairs)["short_wait"].ratio
    assert ratio is not None
    assert ratio.median == pytest.approx(0.05)


def test_no_pairs_give_empty_measures_and_a_plain_sentence() -> None:
    found = summary.measures([])
    assert found["short_wall"].a is None
    assert found["short_wall"].verdict == "too few pairs"
    assert summary.typical_pair([]) is None
    assert summary.largest_difference([]) is None
    assert (
        sentences.verdict_sentence(found, "rotating", False)
        == "No pair of blocks is complete, so there is nothing to compare yet."
    )


def test_typical_pair_lies_nearest_to_the_median() -> None:
    assert summary.typical_pair(EIGHT) == 8  # 1/3.2, where the median is 1/3.1
    assert summary.typical_pair(make_pairs([1.0, 9.0, 3.0])) == 3


def test_largest_difference_of_equal_arms() -> None:
    pairs = make_pairs([1.0, 1.0, 1.0], [1.03, 1.02, 1.022])
    assert summary.largest_difference(pairs) == pytest.approx(0.022)


def test_verdict_in_words() -> None:
    text = sentences.verdict_sentence(summary.measures(EIGHT), "rotating", False)
    assert text == (
        "Under rotating the short request finished 3.1 times sooner (2.8 to 3.4, 8 pairs); the cold one took as long (+0.4 %, no "
        "difference shown); both were done after the same time (+0.4 %, no difference shown)."
    )


def test_verdict_with_too_few_pairs_says_so_and_claims_nothing() -> None:
    text = sentences.verdict_sentence(summary.measures(make_pairs([3.0, 3.2], [1.1, 1.1])), "rotating", False)
    assert text == (
        "Under rotating the short request finished 3.1 times sooner (2 pairs); the cold one took 10.0 % longer; both were done "
        "10.0 % later. Too few pairs to show a difference: 2 of at least 5."
    )


def test_verdict_of_a_loss_and_of_a_small_cost() -> None:
    text = sentences.verdict_sentence(
        summary.measures(make_pairs([0.5] * 6, [1.04, 1.05, 1.06, 1.05, 1.05, 1.05])), "physical", False
    )
    assert "the short request finished 2.0 times later (2.0 to 2.0, 6 pairs)" in text
    assert "the cold one took 5.0 % longer (4.0 to 6.0 %)" in text


def test_verdict_of_equal_arms_names_them() -> None:
    text = sentences.verdict_sentence(summary.measures(make_pairs([1.0, 1.01, 0.99, 1.0, 1.0, 1.0])), "physical", True)
    assert text.startswith(
        "In the second of two equal arms the short request finished after the same time (0.0 %, no difference shown, 6 pairs)"
    )


def test_verdict_without_the_touched_pairs() -> None:
    ratio = summary.measures(EIGHT[1:])["short_wall"].ratio
    assert ratio is not None
    assert (
        sentences.robust_sentence([1], ratio)
        == "Without pair 1 the short request finished 3.2 times sooner (2.9 to 3.4, 7 pairs)."
    )


@pytest.mark.parametrize(
    ("policy", "other", "words"),
    [
        ({"prefill_order": "rotating"}, {"prefill_order": "physical"}, "rotating"),
        ({"prefill_order": "rotating", "phase": "barrier"}, {"prefill_order": "physical", "phase": "barrier"}, "rotating"),
        ({"prefill_order": "rotating", "rotation_start": "after_last"}, {"prefill_order": "physical"}, "rotating, after last"),
        ({"prefill_order": "shortest_first"}, {"prefill_order": "shortest_first"}, "shortest first"),
        ({"prefill_chunk": 512}, {"prefill_chunk": None}, "prefill chunk 512"),
        ({"prefill_chunk": None}, {"prefill_chunk": 512}, "no prefill chunk"),
        ({}, {"phase": "barrier"}, "the policy found"),
    ],
)
def test_arms_are_named_by_what_sets_them_apart(policy: dict[str, object], other: dict[str, object], words: str) -> None:
    assert sentences.arm_words(policy, other) == words


@pytest.mark.parametrize(("change", "words"), [(0.004, "+0.4 %"), (-0.0144, "\u22121.4 %"), (0.0001, "0.0 %")])
def test_percent_carries_its_sign(change: float, words: str) -> None:
    assert sentences.percent(change) == words
