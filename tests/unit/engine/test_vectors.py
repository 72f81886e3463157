"""Embeddings and reranking over HTTP, on the cost model; their arithmetic; prompts of rerankers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from engine.http.vectors import normalized, rerank_prompt
from engine.options import parse_options
from tests.support.fuzz import HOSTILE
from tests.unit.engine.harness import free_backend, served

RERANK = {"query": "one", "documents": ["two", "three"]}


@pytest.mark.parametrize(
    ("norm", "wanted"),
    [
        (-1, [3.0, -4.0]),
        (2, [0.6, -0.8]),
        (1, [3 / 7, -4 / 7]),
        (0, [24570.0, -32760.0]),
        (3, [3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3)]),
    ],
)
def test_norms(norm: int, wanted: list[float]) -> None:
    assert normalized([3.0, -4.0], norm) == pytest.approx(wanted)
    assert normalized([0.0, 0.0], norm) == [0.0, 0.0]


def test_a_reranker_s_prompt() -> None:
    backend = free_backend(parse_options(["--backend", "simulated"], {}))
    query, text = (backend.tokenize(word, add_special=False) for word in ("one", "two"))
    info = backend.info
    assert rerank_prompt("one", "two", backend) == [info.bos, *query, *text]
    backend.info = replace(info, add_eos=True, add_sep=True, sep=7)
    assert rerank_prompt("one", "two", backend) == [info.bos, *query, info.eos, 7, *text, info.eos]
    backend.info = replace(info, add_bos=False, add_eos=True, eos=-1, sep=7)
    assert rerank_prompt("one", "two", backend) == [*query, 7, *text, 7]
    backend.info = replace(info, rerank_template="<s>q {query} d {document}")
    assert rerank_prompt("one", "two", backend) == backend.tokenize("<s>q one d two", add_special=False)


async def test_embeddings_on_the_cost_model_follow_from_the_prompt() -> None:
    async with served("--embeddings") as engine:
        answer = (await engine.post("/v1/embeddings", {"input": ["one", "two", "one"]})).json()
        first, second, third = (item["embedding"] for item in answer["data"])
        assert first == third != second
        assert math.isclose(math.hypot(*first), 1)
        await engine.idle()


async def test_reranking_on_the_cost_model() -> None:
    async with served("--reranking") as engine:
        answer = (await engine.post("/rerank", RERANK)).json()
        scores = [item["relevance_score"] for item in answer["results"]]
        assert scores == sorted(scores, reverse=True)
        assert len((await engine.post("/rerank", {**RERANK, "top_n": 1})).json()["results"]) == 1


async def test_more_prompts_than_slots_wait_for_their_turn() -> None:
    async with served("--embeddings") as engine:
        answer = await engine.post("/embeddings", {"content": [f"prompt {n}" for n in range(40)]})
        assert [item["index"] for item in answer.json()] == list(range(40))


@pytest.mark.parametrize("field", ["query", "documents", "top_n", "return_text"])
async def test_hostile_values_of_a_reranking_request(field: str) -> None:
    async with served("--reranking") as engine:
        n_refused = 0
        for value in HOSTILE:
            rest = json.dumps({name: each for name, each in RERANK.items() if name != field})[1:-1]
            response = await engine.client.post("/rerank", content=f'{{{rest}, "{field}": {value}}}'.encode())
            assert response.status_code in (200, 400) or "too large" in response.text, response.text
            if response.status_code == 400:
                n_refused += 1
                error: dict[str, Any] = response.json()["error"]
                assert field in error["message"] or error["message"].startswith("The body is not valid JSON"), error
        assert n_refused


async def test_more_prompts_than_the_queue_takes_are_refused() -> None:
    async with served("--embeddings", "--queue-limit", "1") as engine:
        response = await engine.post("/embeddings", {"content": [f"prompt {n}" for n in range(40)]})
        assert response.status_code == 400  # they could never all wait
