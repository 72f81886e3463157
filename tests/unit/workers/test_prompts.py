from __future__ import annotations

import pytest

from workers.block import Prompts, judge
from workers.load.client import Answer
from workers.load.prompts import PromptError, ordinary_pool, random_prompt
from workers.scenarios import load

POOL = tuple(range(400, 600))


def make_prompts(seed: int = 7, scale: float = 0.01) -> Prompts:
    scenario = load("warm-behind-cold")
    return Prompts(scenario, scenario.sizes(scale), POOL, seed)


def test_pool_leaves_out_specials_and_bytes() -> None:
    assert ordinary_pool([1, 5, 260, *POOL, 400]) == POOL


def test_pool_of_a_byte_vocabulary_keeps_its_bytes() -> None:
    assert ordinary_pool([97, 98, 99, 100, 101, 102, 103, 32, 97]) == (32, 97, 98, 99, 100, 101, 102, 103)


def test_a_vocabulary_without_variety_is_refused() -> None:
    with pytest.raises(PromptError, match="only 1 distinct"):
        ordinary_pool([3, 3, 3])


def test_random_prompts_have_their_length_and_depend_on_the_seed_alone() -> None:
    assert random_prompt(POOL, 500, "7:1A") == random_prompt(POOL, 500, "7:1A")
    assert random_prompt(POOL, 500, "7:1A") != random_prompt(POOL, 500, "7:1B")
    assert len(random_prompt(POOL, 500, "7:1A")) == 500
    assert set(random_prompt(POOL, 500, "x")) <= set(POOL)


def test_the_warm_part_is_shared_and_everything_else_is_fresh() -> None:
    import json

    prompts = make_prompts()
    warm = json.loads(prompts.warm().body)["prompt"]
    first, second = (json.loads(prompts.short(label).body)["prompt"] for label in ("1A", "1B"))
    assert first[: len(warm)] == second[: len(warm)] == warm
    assert first[len(warm) :] != second[len(warm) :]
    assert json.loads(prompts.cold("1A").body)["prompt"] != json.loads(prompts.cold("1B").body)["prompt"]


def answered(cache_n: int) -> Answer:
    return Answer(1.0, 1.1, 1.2, 1.3, {"cache_n": cache_n, "prompt_n": 10, "prompt_ms": 1.0, "predicted_ms": 0.0})


@pytest.mark.parametrize("cached", [399, 400, 408])
def test_a_warm_slot_is_no_fault(cached: int) -> None:
    prompts = make_prompts()
    assert judge(prompts, prompts.short("1A"), answered(cached)).fault == ""


@pytest.mark.parametrize("cached", [0, 398, 415])
def test_a_slot_that_lost_its_warm_tokens_is_a_fault_of_the_sample(cached: int) -> None:
    prompts = make_prompts()
    fault = judge(prompts, prompts.short("1A"), answered(cached)).fault
    assert fault == f"Slot 1 held {cached} of the 400 warm tokens when the short request came."


def test_a_cold_prompt_that_was_cached_is_a_fault() -> None:
    prompts = make_prompts()
    assert judge(prompts, prompts.cold("1A"), answered(3)).fault == ""
    assert judge(prompts, prompts.cold("1A"), answered(90)).fault == "90 tokens of the cold prompt came from the cache."


def test_an_error_of_the_request_comes_first() -> None:
    prompts = make_prompts()
    assert judge(prompts, prompts.cold("1A"), Answer(1.0, error="The server answered 500.")).fault == "The server answered 500."
