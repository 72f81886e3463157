"""Servers are spread evenly over observers, whoever computes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_api.observer.leases import Owner, this_process
from scheduler_api.observer.sharing import share


@given(st.integers(0, 200), st.integers(1, 12))
def test_shares_add_up_and_differ_by_one_at_most(servers: int, observers: int) -> None:
    there = list(range(observers))
    shares = [share(servers, there, me) or 0 for me in there]
    assert sum(shares) == servers
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True), "the older ones have one more, so that a newcomer moves the least"


def test_one_that_is_not_counted_neither_takes_nor_gives_up() -> None:
    assert share(5, [1, 2], 3) is None
    assert share(5, [], 3) is None


def test_an_owner_is_read_back_from_its_text() -> None:
    owner = this_process()
    assert Owner.of(owner.text) == owner
    assert this_process() != owner
