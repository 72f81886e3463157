"""What the cost model and the orders say about a published run, against what was measured there."""

from __future__ import annotations

import pytest

from benchmarks.simulate import MEASURED, headline


def test_each_time_is_within_three_percent() -> None:
    found, _ = headline()
    assert found == {name: pytest.approx(seconds, rel=0.03) for name, seconds in MEASURED.items()}
