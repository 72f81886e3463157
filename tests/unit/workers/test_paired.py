from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workers.analysis.paired import MIN_PAIRS, Verdict, coverage, interval_rank, paired_ratio

positive = st.floats(0.01, 100)


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [(5, 1, 0.9375), (6, 1, 0.96875), (8, 1, 0.9921875), (8, 2, 0.9296875), (10, 2, 0.978515625), (20, 6, 0.958610534667969)],
)
def test_coverage_is_the_binomial_one(n: int, k: int, expected: float) -> None:
    assert coverage(n, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "rank"), [(5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6)])
def test_interval_takes_the_largest_rank_that_covers_95_percent(n: int, rank: int) -> None:
    assert interval_rank(n) == rank
    assert coverage(n, rank) >= 0.95 or rank == 1


def test_known_ratios_of_eight_pairs() -> None:
    a = [23.0] * 8
    b = [23.0 / factor for factor in (2.8, 3.3, 3.0, 3.4, 2.9, 3.3, 3.0, 3.2)]
    ratio = paired_ratio(a, b)
    assert ratio is not None
    assert 1 / ratio.median == pytest.approx(math.sqrt(3.0 * 3.2))  # the middle two, on the logarithm's scale
    assert ratio.low == pytest.approx(1 / 3.4)
    assert ratio.high == pytest.approx(1 / 2.8)
    assert ratio.level == 0.9921875
    assert ratio.n == 8
    assert ratio.verdict is Verdict.SHOWN


def test_four_pairs_give_no_interval_however_large_the_difference() -> None:
    ratio = paired_ratio([10.0] * 4, [1.0] * 4)
    assert ratio is not None
    assert (ratio.low, ratio.high, ratio.level) == (None, None, None)
    assert ratio.verdict is Verdict.TOO_FEW


def test_one_pair_the_other_way_among_five_shows_no_difference() -> None:
    ratio = paired_ratio([1.0] * 5, [0.5, 0.5, 0.5, 0.5, 1.01])
    assert ratio is not None
    assert ratio.verdict is Verdict.NOT_SHOWN


def test_values_under_the_floor_count_as_the_floor() -> None:
    ratio = paired_ratio([4.0] * 5, [0.001] * 5, floor=0.05)
    assert ratio is not None
    assert ratio.median == pytest.approx(0.05 / 4.0)


def test_pairs_without_a_positive_value_are_left_out() -> None:
    ratio = paired_ratio([1.0, 0.0, 2.0], [2.0, 1.0, 0.0])
    assert ratio is not None
    assert ratio.n == 1
    assert ratio.median == pytest.approx(2.0)
    assert paired_ratio([0.0], [1.0]) is None
    assert paired_ratio([], []) is None


def test_sides_of_different_length_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [])


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=30))
def test_swapping_the_arms_inverts_the_ratio_and_keeps_the_verdict(pairs: list[tuple[float, float]]) -> None:
    a, b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    there, back = paired_ratio(a, b), paired_ratio(b, a)
    assert there is not None
    assert back is not None
    assert there.median * back.median == pytest.approx(1.0)
    if there.low is not None and there.high is not None:
        assert back.low is not None
        assert there.low <= there.median * (1 + 1e-9)
        assert there.median <= there.high * (1 + 1e-9)
        assert back.low * there.high == pytest.approx(1.0)
    assert (there.verdict is Verdict.TOO_FEW) == (len(pairs) < MIN_PAIRS)


@given(st.lists(st.tuples(positive, positive), min_size=5, max_size=30), st.floats(0.01, 100))
def test_the_unit_of_the_measure_does_not_matter(pairs: list[tuple[float, float]], unit: float) -> None:
    a, b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    plain = paired_ratio(a, b)
    scaled = paired_ratio([x * unit for x in a], [x * unit for x in b])
    assert plain is not None
    assert scaled is not None
    assert scaled.median == pytest.approx(plain.median)


@given(st.integers(5, 60), st.integers(1, 10))
def test_coverage_as_scipy_computes_it(n: int, k: int) -> None:
    if 2 * k <= n:
        assert coverage(n, k) == pytest.approx(1 - 2 * stats.binom.cdf(k - 1, n, 0.5), abs=1e-12)
