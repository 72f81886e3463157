"""The clock that shards have in common, with a real Valkey."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from tests.support.valkey import ValkeyProcess
from workers import refclock
from workers.errors import RunFailed
from workers.load.clock import ClientClock
from workers.refclock import Offset


class FakeClock(ClientClock):
    """Runs a quarter of an hour ahead."""

    def now(self) -> float:
        return super().now() + 900.0


def test_workers_whose_clocks_differ_agree_on_a_moment(valkey: ValkeyProcess) -> None:
    right, wrong = ClientClock(), FakeClock()
    mine, theirs = refclock.measure(right), refclock.measure(wrong)
    assert 0 < mine.error < 0.25
    assert abs(mine.seconds) <= mine.error + 0.01  # Valkey runs on this machine
    start = right.now() + 1.0
    on_theirs = start + mine.seconds - theirs.seconds
    assert on_theirs - 900.0 == pytest.approx(start, abs=mine.error + theirs.error)
    assert theirs.beside(mine) == pytest.approx(-900.0, abs=mine.error + theirs.error)


def test_a_difference_that_drowns_in_the_errors_is_none() -> None:
    assert Offset(0.010, 0.004).beside(Offset(0.004, 0.003)) == 0.0
    assert Offset(0.020, 0.004).beside(Offset(0.004, 0.003)) == pytest.approx(0.016)


def test_without_valkey_the_run_says_what_is_missing(settings: Settings) -> None:
    with pytest.raises(RunFailed, match="Valkey cannot be reached, and the shards have their common clock from it"):
        refclock.measure(ClientClock())
