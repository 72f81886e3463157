from __future__ import annotations

from typing import Any

import pytest

from workers import scenarios
from workers.scenarios import ScenarioError, schema

PART: dict[str, Any] = {"slot": 0, "depth": 0, "tokens": 100}
GOOD: dict[str, Any] = {
    "name": "x",
    "version": 1,
    "cold": PART,
    "short": {"slot": 1, "depth": 50, "tokens": 10},
    "n_predict": 1,
    "share": 0.1,
}


def test_every_scenario_file_of_the_product_loads() -> None:
    assert "warm-behind-cold" in scenarios.names()
    assert [scenarios.load(name).name for name in scenarios.names()] == scenarios.names()


def test_full_scale_of_warm_behind_cold() -> None:
    scenario = scenarios.load("warm-behind-cold")
    sizes = scenario.sizes(1.0)
    assert (sizes.cold, sizes.depth, sizes.short, sizes.n_predict) == (18_000, 40_000, 1_500, 1)
    assert (scenario.cold.slot, scenario.short.slot, scenario.share) == (0, 1, 0.1)
    assert sizes.context_needed == 41_502
    assert sizes.computed == 19_500


def test_scale_rounds_and_never_vanishes() -> None:
    sizes = scenarios.load("warm-behind-cold").sizes(0.005)
    assert (sizes.cold, sizes.depth, sizes.short) == (90, 200, 16)


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.001, 21.0, float("nan"), float("inf")])
def test_senseless_scales_are_refused(scale: float) -> None:
    with pytest.raises(ScenarioError, match="outside"):
        scenarios.load("warm-behind-cold").sizes(scale)


def test_an_unknown_scenario_names_the_known_ones() -> None:
    with pytest.raises(ScenarioError, match="known are warm-behind-cold"):
        scenarios.load("../../etc/passwd")


def test_a_good_file_parses() -> None:
    assert schema.parse(GOOD, "x").short.depth == 50


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"cold": None}, "must be a mapping"),
        ({"cold": {**PART, "slot": 1}}, "both prompts on slot 1"),
        ({"cold": {**PART, "depth": 5}}, "cold prompt a warm depth of 5"),
        ({"cold": {**PART, "tokens": 0}}, "tokens must be a whole number of at least 1"),
        ({"cold": {**PART, "slot": -1}}, "slot must be a whole number of at least 0"),
        ({"cold": {**PART, "tokens": True}}, "tokens must be a whole number"),
        ({"cold": {**PART, "speed": 1}}, "unknown fields: speed"),
        ({"n_predict": "1"}, "n_predict must be a whole number"),
        ({"share": 1.0}, "share must be at least 0 and below 1"),
        ({"share": "0.1"}, "share must be"),
        ({"name": "y"}, "names itself 'y'"),
        ({"extra": 1}, "unknown fields: extra"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        schema.parse({**GOOD, **change}, "x")
