"""Paired differences, the verdict's words, the noise floor; exact intervals against scipy."""

from __future__ import annotations

import itertools

import pytest
from scipy import stats

from workers.analysis.differences import (
    Better,
    Difference,
    Word,
    below_floor,
    largest_departure,
    paired_difference,
    unpaired_difference,
    word_of,
)
from workers.analysis.paired import paired_ratio

BASE = [1.0, 1.1, 0.9, 1.05, 1.2, 0.95, 1.0, 1.15, 1.02, 0.98, 1.07, 1.01]


def word(a: list[float], b: list[float], better: Better = "lower") -> Word:
    return word_of(paired_ratio(a, b), paired_difference(a, b, 1), better)


def scaled(factor: float, n: int) -> tuple[list[float], list[float]]:
    return BASE[:n], [value * factor for value in BASE[:n]]


def test_few_pairs_get_the_exact_interval_of_the_median() -> None:
    """Its coverage is that of the sign test: P(X < 1) for 8 pairs is the probability that all lie on one side."""
    apart = [0.3, -0.1, 0.2, 0.5, 0.4, 0.1, 0.6, 0.25]
    found = paired_difference([0.0] * 8, apart, 1)
    assert found is not None
    assert (found.method, found.low, found.high) == ("exact", -0.1, 0.6)
    assert found.value == found.median == pytest.approx(0.275)
    assert found.level == pytest.approx(1 - stats.binomtest(0, 8, 0.5).pvalue)


def test_the_exact_interval_covers_the_median_as_often_as_it_says() -> None:
    """All 2^9 signs of nine differences, each as likely: exactly the stated share of the intervals holds 0."""
    sizes = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    signed = [[sign * size for sign, size in zip(signs, sizes, strict=True)] for signs in itertools.product((-1, 1), repeat=9)]
    found = [paired_difference([0.0] * 9, apart, 1) for apart in signed]
    sides = [each.side for each in found if each is not None]
    assert found[0] is not None
    assert sides.count(0) / len(sides) == pytest.approx(found[0].level)


def test_many_pairs_get_a_bootstrap_interval_of_the_mean() -> None:
    found = paired_difference(BASE, [value + 0.5 for value in BASE[:6]] + [value + 0.7 for value in BASE[6:]], 1)
    assert found is not None
    assert (found.method, found.n, found.level) == ("bca", 12, 0.95)
    assert found.value == found.mean == pytest.approx(0.6)
    assert found.low is not None
    assert found.high is not None
    assert 0.5 < found.low < 0.6 < found.high < 0.7


@pytest.mark.parametrize("n", [6, 12])
def test_words(n: int) -> None:
    assert word(*scaled(0.5, n)) is Word.FASTER
    assert word(*scaled(2.0, n)) is Word.SLOWER
    assert word(*scaled(2.0, n), better="higher") is Word.FASTER
    a, b = scaled(1.0, n)
    assert word(a, [value + (0.1 if place % 2 else -0.1) for place, value in enumerate(b)]) is Word.NOT_SHOWN
    assert word(a[:4], [value / 9 for value in a[:4]]) is Word.TOO_FEW
    assert word([], []) is Word.TOO_FEW


def test_a_mean_that_one_wild_pair_undoes_is_not_claimed() -> None:
    """Eleven of twelve pairs are faster, so the ratio's interval is below 1; the mean difference is not known to be."""
    a, b = scaled(0.8, 12)
    b[5] = 20.0
    ratio = paired_ratio(a, b)
    assert ratio is not None
    assert ratio.high is not None
    assert ratio.high < 1
    assert word(a, b) is Word.NOT_SHOWN


def test_rates_of_zero_have_a_difference_without_a_ratio() -> None:
    assert word([0.0] * 6, [1.0, 1.2, 0.9, 1.1, 1.3, 1.0], "higher") is Word.FASTER
    assert word([0.0] * 6, [0.0] * 6, "higher") is Word.NOT_SHOWN


def test_evenness_is_not_fast() -> None:
    a, b = scaled(0.5, 6)
    found = word_of(paired_ratio(a, b), paired_difference(a, b, 1), "higher", even=True)
    assert found is Word.LESS_EVEN


def test_the_floor_is_the_largest_departure_of_equal_arms_either_way() -> None:
    floor = largest_departure([1.0, 2.0], [1.1, 1.0])
    assert floor == pytest.approx(1.0)  # half is as far from 1 as twice
    assert largest_departure([0.0], [1.0]) is None
    half, twice, third = (paired_ratio([2.0] * 6, [value] * 6) for value in (1.0, 4.0, 0.6))
    assert below_floor(half, floor)
    assert below_floor(twice, floor)
    assert not below_floor(third, floor)
    assert not below_floor(half, None)


def test_runs_are_compared_without_pairs() -> None:
    found = unpaired_difference(BASE[:6], [value + 1 for value in BASE], 1)
    assert isinstance(found, Difference)
    assert (found.method, found.n, found.side) == ("unpaired", 6, 1)
    few = unpaired_difference(BASE[:4], BASE, 1)
    assert few is not None
    assert (few.side, few.method) == (None, "")
    assert unpaired_difference([], BASE, 1) is None
