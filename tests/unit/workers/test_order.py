"""The order of a run's blocks."""

from __future__ import annotations

import pytest

from workers.analysis.order import Step, default_floor, steps


def arms(found: list[Step]) -> str:
    return " ".join(first.arm + second.arm for first, second in zip(found[::2], found[1::2], strict=True))


def test_abba_turns_every_pair() -> None:
    assert arms(steps(4)) == "AB BA AB BA"
    assert [step.pair for step in steps(2)] == [1, 1, 2, 2]


def test_a_drawn_order_is_balanced_and_the_same_for_its_seed() -> None:
    orders = {arms(steps(6, order="random", seed=seed)) for seed in range(40)}
    assert len(orders) > 10  # of 20 that there are
    assert all(order.count("AB") == 3 for order in orders)
    assert steps(7, order="random", seed=3) == steps(7, order="random", seed=3)
    odd = {arms(steps(3, order="random", seed=seed)).count("AB") for seed in range(40)}
    assert odd == {1, 2}


def test_the_floor_comes_first_with_one_arm_on_both_sides_and_a_load_of_its_own() -> None:
    found = steps(2, floor=2)
    assert arms(found) == "AA AA AB BA"
    assert [step.index for step in found] == list(range(1, 9))
    assert [(step.pair, step.floor) for step in found[:4]] == [(0, 1), (0, 1), (0, 2), (0, 2)]
    assert found[0].draws == found[1].draws != found[2].draws
    assert len({step.label for step in found}) == 8
    assert not {step.draws for step in found[:4]} & {step.draws for step in found[4:]}
    assert found[1].where == "Floor pair 1, second block"
    assert found[7].where == "Pair 2, arm A"


def test_an_order_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="known are abba, random"):
        steps(2, order="abab")


def test_a_floor_is_sent_where_something_is_claimed() -> None:
    assert default_floor(8, equal_arms=False) == 2
    assert default_floor(8, equal_arms=True) == 0
    assert default_floor(4, equal_arms=False) == 0
