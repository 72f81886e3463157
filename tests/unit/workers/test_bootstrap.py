"""Bootstrap intervals against scipy, and what they cover on synthetic data whose mean is known."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from scipy import stats

from workers.analysis import bootstrap
from workers.analysis.bootstrap import bca, difference_of_means, student_cdf, student_quantile, weights

SKEWED = [0.1, 0.2, 0.2, 0.4, 0.5, 0.7, 0.9, 1.3, 1.4, 2.2, 3.5, 6.0]
NORMAL_TAIL = 1.959963984540054


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 10, 99])
def test_student_as_scipy_has_it(degrees: int) -> None:
    assert student_quantile(0.975, degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)
    assert student_cdf(1.3, degrees) == pytest.approx(stats.t.cdf(1.3, degrees), rel=1e-12)


def test_without_the_wider_tails_it_is_scipys_bca(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different resamples, so the ends agree as far as the resampling's own noise lets them."""
    monkeypatch.setattr(bootstrap, "wide", lambda n, level: NORMAL_TAIL)
    monkeypatch.setattr(bootstrap, "weights", lambda n, seed: weights(n, seed, 20_000))
    bootstrap._bca.cache_clear()
    found = bca(SKEWED, 1, 0.95)
    bootstrap._bca.cache_clear()
    generator = np.random.default_rng(1)
    told = stats.bootstrap((SKEWED,), np.mean, n_resamples=20_000, method="BCa", rng=generator).confidence_interval
    assert found == pytest.approx((told.low, told.high), abs=0.03)
    plain = stats.bootstrap((SKEWED,), np.mean, n_resamples=20_000, method="percentile", rng=generator).confidence_interval
    assert found[1] - plain.high > 0.15  # so the correction is seen


def test_the_difference_of_two_means_as_scipy_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "wide", lambda n, level: NORMAL_TAIL)
    other = [value + 0.5 for value in SKEWED[:9]]
    found = difference_of_means(SKEWED, other, 1, 0.95)
    told = stats.bootstrap(
        (other, SKEWED),
        lambda b, a, axis: np.mean(b, axis=axis) - np.mean(a, axis=axis),
        n_resamples=5_000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert found == pytest.approx((told.low, told.high), abs=0.1)


def test_intervals_of_ten_values_cover_what_they_say() -> None:
    """The true mean is within 95 % intervals of normal draws about 95 times in 100; 400 trials are good to 2 points."""
    random = Random(7)
    trials = [[random.gauss(1.0, 1.0) for _ in range(10)] for _ in range(400)]
    ends = [bca(trial, 3, 0.95) for trial in trials]
    assert 0.92 <= sum(low <= 1.0 <= high for low, high in ends) / len(ends) <= 0.985


def test_the_same_seed_gives_the_same_interval_and_resamples_are_whole() -> None:
    assert bca(SKEWED, 5, 0.95) == bca(SKEWED, 5, 0.95) != bca(SKEWED, 6, 0.95)
    assert all(sum(each) == pytest.approx(1.0) for each in weights(12, 5))


def test_equal_values_have_no_spread_and_one_value_has_no_interval() -> None:
    assert bca([0.1 + 0.2] * 10, 1, 0.95) == pytest.approx((0.3, 0.3))
    with pytest.raises(ValueError, match="at least two"):
        bca([1.0], 1, 0.95)
    with pytest.raises(ValueError, match="at least two"):
        difference_of_means([1.0], [1.0, 2.0], 1, 0.95)
