"""Probabilities after sampling, held against what llama.cpp's own chain draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine

pytestmark = pytest.mark.model

N_DRAWS = 200
PROMPT = [300, 301, 302, 300, 303, 301, 300]
PLAIN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with running_engine("-np", "4", "-c", "2048", "--no-kv-unified") as engine:
        yield engine


def ask(engine: EngineProcess, n_predict: int = 1, **wish: Any) -> list[dict[str, Any]]:
    body = {"prompt": PROMPT, "n_predict": n_predict, "n_probs": 40, "post_sampling_probs": True, "ignore_eos": True, **wish}
    answer: list[dict[str, Any]] = engine.complete(**body)["completion_probabilities"]
    return answer


def draws(engine: EngineProcess, **wish: Any) -> Counter[int]:
    """First tokens of many tasks, each with a seed of its own."""
    body = {"prompt": PROMPT, "n_predict": 1, "return_tokens": True, "ignore_eos": True, **wish}
    with ThreadPoolExecutor(4) as clients:
        return Counter(clients.map(lambda seed: engine.complete(**body, seed=seed)["tokens"][0], range(N_DRAWS)))


@pytest.mark.parametrize(
    "wish",
    [
        {"top_k": 5, "temperature": 3.0},
        {"top_k": 12, "top_p": 0.6, "temperature": 0.7},
        {"top_k": 30, "min_p": 0.4},
        {"top_k": 30, "typical_p": 0.5},
        {"top_n_sigma": 2.0, "top_k": 20},
        {"top_k": 8, "dynatemp_range": 0.6, "dynatemp_exponent": 1.5},
        {"top_k": 6, "repeat_penalty": 1.6, "presence_penalty": 0.4, "frequency_penalty": 0.3},
        {"top_k": 6, "logit_bias": [[300, 12.0], [301, 11.5], [302, 11.0]]},
        {"top_k": 9, "samplers": ["temperature", "top_k"], "temperature": 0.4},
    ],
    ids=lambda wish: " ".join(wish),
)
def test_they_are_those_with_which_tokens_are_drawn(engine: EngineProcess, wish: dict[str, Any]) -> None:
    wish = {**PLAIN, **wish}
    shown = ask(engine, **wish)[0]
    left = {entry["id"]: entry["prob"] for entry in shown["top_probs"]}
    assert sum(left.values()) == pytest.approx(1, abs=1e-6)
    assert list(left.values()) == sorted(left.values(), reverse=True)
    counts = draws(engine, **wish)
    assert counts.keys() <= {token for token, prob in left.items() if prob > 0}, "a token was drawn that should not be left"
    for token, prob in left.items():
        spread = 4.5 * math.sqrt(max(prob * (1 - prob), 1 / N_DRAWS) / N_DRAWS)
        assert abs(counts[token] / N_DRAWS - prob) <= spread, (
            f"token {token}: {prob:.3f} shown, {counts[token]} of {N_DRAWS} drawn"
        )


def test_a_greedy_draw_is_certain(engine: EngineProcess) -> None:
    for shown in ask(engine, n_predict=5, temperature=0.0, n_probs=10):
        assert shown["prob"] == 1.0
        assert [top["prob"] for top in shown["top_probs"]] == [1.0] + [0.0] * 9
        assert shown["top_probs"][0]["id"] == shown["id"]
        assert "logprob" not in shown


def test_penalties_see_the_tokens_that_were_drawn(engine: EngineProcess) -> None:
    wish = {"repeat_penalty": 5.0, "repeat_last_n": 64, "temperature": 0.0}
    shown = ask(engine, n_predict=12, **wish)
    assert [entry["prob"] for entry in shown] == [1.0] * 12  # the token drawn is the best one after the same penalties


def test_openais_shapes_have_them_too(engine: EngineProcess) -> None:
    body = {"prompt": PROMPT, "max_tokens": 2, "logprobs": 3, "post_sampling_probs": True, "temperature": 0}
    found = engine.client.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert found["token_probs"] == [1.0, 1.0]
    assert [len(top) for top in found["top_probs"]] == [3, 3]


@pytest.mark.parametrize(
    "wish",
    [{"grammar": 'root ::= "a"'}, {"mirostat": 2}, {"dry_multiplier": 0.5}, {"xtc_probability": 0.5},
     {"samplers": ["adaptive_p"], "adaptive_target": 0.5}],
)  # fmt: skip
def test_what_depends_on_more_is_refused(engine: EngineProcess, wish: dict[str, Any]) -> None:
    body = {"prompt": "a", "n_predict": 1, "n_probs": 1, "post_sampling_probs": True, **wish}
    answer = engine.client.post("/completion", json=body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, "post_sampling_probs")
    assert engine.client.post("/completion", json={**body, "n_probs": 0}).status_code == 200
