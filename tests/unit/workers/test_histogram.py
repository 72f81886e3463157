"""Histograms that add up, beside the exact percentiles of the same values."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.analysis.numbers import percentile
from workers.load.histogram import ERROR, Histogram

seconds = st.lists(st.floats(1e-5, 5000.0), min_size=1, max_size=60)


@given(seconds, st.floats(0, 1))
def test_every_percentile_is_within_the_stated_error(values: list[float], share: float) -> None:
    found = Histogram(values).percentile(share)
    exact = percentile(values, share)
    assert found is not None
    assert abs(found - exact) <= ERROR * exact * 1.000001


@given(seconds, seconds)
def test_merged_is_what_one_would_have_made(first: list[float], second: list[float]) -> None:
    merged, whole = Histogram(first), Histogram([*first, *second])
    merged.merge(Histogram(second))
    assert (merged.counts, merged.n, merged.low, merged.high) == (whole.counts, whole.n, whole.low, whole.high)
    assert merged.total == pytest.approx(whole.total)


def test_it_survives_json_and_strictly_so_when_it_is_empty() -> None:
    draws = Random(1)
    full = Histogram([0.0, 1e-9, *(draws.lognormvariate(-2, 1.5) for _ in range(500))])
    again = Histogram.of_json(json.loads(json.dumps(full.as_json(), allow_nan=False)))
    assert (again.counts, again.n, again.low, again.high, again.mean) == (full.counts, full.n, full.low, full.high, full.mean)
    nothing = Histogram.of_json(json.loads(json.dumps(Histogram().as_json(), allow_nan=False)))
    assert (nothing.n, nothing.percentile(0.5), nothing.mean) == (0, None, None)
    again.merge(nothing)
    assert again.low == 0.0


def test_a_wide_load_fits_in_few_buckets() -> None:
    draws = Random(2)
    found = Histogram(draws.lognormvariate(-3, 1) for _ in range(20_000))
    assert len(found.counts) < 1000
