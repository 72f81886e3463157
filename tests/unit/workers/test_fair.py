"""Known answers of fairness: Jain, max service gap, slowdown, waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workers.analysis.fair import fairness, jain, longest_wait, served, service_gap, slowdown
from workers.analysis.requests import Times


def times(stream: str = "chat", sent_at: float = 0.0, e2e_s: float = 2.0, **fields: Any) -> Times:
    plain = {"outcome": "ok", "done_at": sent_at + e2e_s, "ttft_s": 0.5, "n_prompt": 10, "n_cached": 0, "n_generated": 4}
    return Times(stream, sent_at=sent_at, e2e_s=e2e_s, **{**plain, **fields})


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [4.0, 0.0], [1.0, 2.0, 3.0, 10.0]])
def test_jain_as_numpy_computes_it(values: list[float]) -> None:
    array = np.array(values)
    assert jain(values) == pytest.approx(array.sum() ** 2 / (array.size * (array**2).sum()))


def test_jain_at_its_ends_and_where_it_says_nothing() -> None:
    assert jain([5.0, 5.0]) == 1.0
    assert jain([5.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([5.0]) is None
    assert jain([0.0, 0.0]) is None


def test_a_service_gap_is_the_longest_time_with_work_and_without_a_token() -> None:
    one = times(ttft_s=0.5, gaps=(0.5, 0.9))  # tokens at 0.5, 1.0, 1.9, done at 2
    assert service_gap([one]) == pytest.approx(0.9)
    other = times(sent_at=1.5, e2e_s=3.0, ttft_s=0.1, gaps=())  # a token at 1.6, then nothing until 4.5
    assert service_gap([one, other]) == pytest.approx(4.5 - 1.9)
    later = times(sent_at=100.0, ttft_s=0.2, gaps=(1.7,))  # nobody waited between 2 and 100
    assert service_gap([one, later]) == pytest.approx(1.7)
    starved = times(e2e_s=7.0, ttft_s=None, outcome="timeout")
    assert service_gap([starved]) == 7.0
    assert service_gap([times(done_at=None)]) is None


def test_the_longest_wait_is_the_servers_where_it_tells_it_of_all() -> None:
    assert longest_wait([times(ttft_s=0.5), times(ttft_s=3.0)]) == 3.0
    assert longest_wait([times(wait_s=0.2), times(wait_s=0.9, ttft_s=5.0)]) == 0.9
    assert longest_wait([times(wait_s=0.2), times(ttft_s=5.0)]) == 5.0
    assert longest_wait([times(), times(e2e_s=30.0, ttft_s=None, outcome="timeout")]) == 30.0


def test_slowdown_is_against_running_alone_and_else_unknown() -> None:
    rows = [times(e2e_s=2.0), times(e2e_s=4.0), times(e2e_s=90.0, outcome="timeout")]
    assert slowdown(rows, 1.5) == pytest.approx(2.0)
    assert slowdown(rows, None) is None
    assert slowdown([], 1.5) is None


def test_cached_tokens_are_no_service() -> None:
    assert served([times(n_prompt=100, n_cached=90, n_generated=5), times(n_prompt=None, n_generated=3)]) == 18
    assert served([times(n_prompt=None, n_generated=None)]) is None


def test_fairness_of_a_block_over_streams_and_clients() -> None:
    rows = [times(client="shop", n_prompt=26), times("batch", client="night", n_prompt=6, e2e_s=6.0)]
    found = fairness(rows, {"chat": 1.0, "batch": 2.0})
    assert found["", "jain_clients"] == found["", "jain_streams"] == pytest.approx(40**2 / (2 * (30**2 + 10**2)))
    assert found["chat", "slowdown"] == 2.0
    assert found["", "jain_slowdown"] == pytest.approx(25 / (2 * 13))
    assert found["client:night", "gap"] == pytest.approx(5.5)
    assert found["", "oldest_wait"] == 0.5
    unknown = fairness([times(), times("batch")], {"chat": 1.0})
    assert ("", "jain_slowdown") not in unknown
    assert ("", "jain_clients") not in unknown
