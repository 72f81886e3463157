from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.analysis.numbers import Spread, median, percentile, spread

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("data", "q", "expected"),
    [
        ([15, 20, 35, 40, 50], 0.4, 29.0),  # position 1.6: 20 + 0.6 * 15
        ([1, 2, 3, 4], 0.5, 2.5),
        ([1, 2, 3, 4], 0.25, 1.75),
        ([3, 1, 2], 1.0, 3.0),
        ([3, 1, 2], 0.0, 1.0),
        ([7], 0.95, 7.0),
    ],
)
def test_percentile_interpolates_between_neighbours(data: list[float], q: float, expected: float) -> None:
    assert percentile(data, q) == pytest.approx(expected)


@pytest.mark.parametrize(("data", "q"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.1)])
def test_percentile_of_nothing_or_outside_its_range_is_an_error(data: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile(data, q)


@given(values, st.floats(0, 1), st.floats(0, 1))
def test_percentiles_grow_with_q_and_stay_inside_the_data(data: list[float], q: float, r: float) -> None:
    low, high = percentile(data, min(q, r)), percentile(data, max(q, r))
    assert min(data) - 1e-6 <= low <= high + 1e-6 <= max(data) + 2e-6


def test_spread_of_an_even_count_and_of_nothing() -> None:
    assert spread([4.0, 1.0, 2.0, 3.0]) == Spread(2.5, 1.0, 4.0)
    assert spread([]) is None
    assert median([5.0, 1.0, 9.0]) == 5.0


@given(values, st.floats(0, 1))
def test_percentiles_are_those_of_numpy(data: list[float], q: float) -> None:
    assert percentile(data, q) == pytest.approx(float(np.quantile(data, q)), rel=1e-9, abs=1e-6)
