"""Embeddings and reranking on the real engine, beside completions of the same server."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.tiny_variants import write_ranking_model, write_small_model

pytestmark = pytest.mark.model

TEXTS = ["the cold slot", "a warm queue of many requests that wait for a slot", "token"]
SLOTS = ("-np", "3", "-c", "3072", "--no-kv-unified", "-ub", "256")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_model(tmp_path_factory.mktemp("models") / "small.gguf")


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ranking_model(tmp_path_factory.mktemp("models") / "ranker.gguf")


@pytest.fixture(scope="module", params=["mean", "last"])
def engine(model: Path, request: pytest.FixtureRequest) -> Iterator[EngineProcess]:
    with running_engine("-m", str(model), *SLOTS, "--embeddings", "--pooling", request.param) as engine:
        yield engine


def post(engine: EngineProcess, path: str, status: int = 200, **body: Any) -> Any:
    response = engine.client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


def embed(engine: EngineProcess, given: Any, **more: Any) -> list[list[float]]:
    return [item["embedding"] for item in post(engine, "/v1/embeddings", input=given, **more)["data"]]


def close(a: list[float], b: list[float]) -> bool:
    return len(a) == len(b) and all(math.isclose(x, y, abs_tol=1e-4) for x, y in zip(a, b, strict=True))


def test_embeddings_in_openai_s_shape(engine: EngineProcess) -> None:
    answer = post(engine, "/v1/embeddings", input=TEXTS, model="mine")
    assert (answer["object"], answer["model"]) == ("list", "mine")
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    n_tokens = sum(len(post(engine, "/tokenize", content=text, add_special=True)["tokens"]) for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    for item in answer["data"]:
        assert len(item["embedding"]) == 128
        assert math.isclose(math.hypot(*item["embedding"]), 1, abs_tol=1e-4)


def test_prompts_that_share_a_batch_get_what_they_get_alone(engine: EngineProcess) -> None:
    before, given = engine.get("/scheduler")["iteration"], [f"{text} {n}" for n in range(6) for text in TEXTS]
    together = embed(engine, given)
    iterations = engine.get(f"/scheduler/iterations?after={before}")["iterations"]
    assert max(len(iteration["prompt"]) for iteration in iterations) > 1
    assert all(close(embed(engine, text)[0], vector) for text, vector in zip(given, together, strict=True))
    assert not close(together[0], together[1])


def test_base64_holds_the_same_numbers(engine: EngineProcess) -> None:
    item = post(engine, "/v1/embeddings", input=TEXTS[0], encoding_format="base64")["data"][0]
    raw = base64.b64decode(item["embedding"])
    assert item["encoding_format"] == "base64"
    assert close(list(struct.unpack(f"<{len(raw) // 4}f", raw)), embed(engine, TEXTS[0])[0])


def test_openai_s_client_reads_them(engine: EngineProcess) -> None:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(api_key="none", base_url=f"{engine.url}/v1", max_retries=0, http_client=http) as client:
        answer = client.embeddings.create(model="any", input=TEXTS)  # asks for base64
        assert all(close(item.embedding, vector) for item, vector in zip(answer.data, embed(engine, TEXTS), strict=True))
        assert answer.usage.prompt_tokens > 0


def test_native_shape_and_norms(engine: EngineProcess) -> None:
    for path in ("/embedding", "/embeddings"):
        answer = post(engine, path, content=TEXTS[:2])
        assert [item["index"] for item in answer] == [0, 1]
        assert close(answer[0]["embedding"][0], embed(engine, TEXTS[0])[0])
    raw = post(engine, "/embeddings", content=TEXTS[0], embd_normalize=-1)[0]["embedding"][0]
    length, sum_of_sizes, largest = math.hypot(*raw), sum(map(abs, raw)), max(map(abs, raw))
    for norm, size in ((2, length), (1, sum_of_sizes), (0, largest / 32760)):
        vector = post(engine, "/embeddings", content=TEXTS[0], embd_normalize=norm)[0]["embedding"][0]
        assert all(math.isclose(x, y / size, rel_tol=1e-3, abs_tol=1e-4) for x, y in zip(vector, raw, strict=True))


def test_every_shape_of_input(engine: EngineProcess) -> None:
    tokens = post(engine, "/tokenize", content=TEXTS[0], add_special=True)["tokens"]
    wanted = embed(engine, TEXTS[0])[0]
    wrapped = {"content": [{"type": "text", "text": TEXTS[0][:4]}, {"type": "text", "text": TEXTS[0][4:]}]}
    for given in (tokens, [tokens], {"prompt_string": TEXTS[0]}, wrapped, [wrapped, TEXTS[1]]):
        vectors = embed(engine, given)
        assert close(vectors[0], wanted)
    assert len(embed(engine, [TEXTS[0][:3], *tokens])) == 1
    assert len(embed(engine, "")) == 1  # a beginning of text alone


@pytest.mark.parametrize(
    "given",
    [[], None, {"content": "text"}, {"content": [{"type": "image_url"}]}, 5, [[1 << 40]], {"content": [{"type": "text"}]}],
)
def test_a_wrong_input_is_refused(engine: EngineProcess, given: Any) -> None:
    assert "input" in post(engine, "/v1/embeddings", 400, input=given)["error"]["message"]


def test_an_unknown_encoding_is_refused(engine: EngineProcess) -> None:
    assert post(engine, "/v1/embeddings", 400, input="a", encoding_format="hex")["error"]["field"] == "encoding_format"


def test_a_long_prompt_is_split_only_where_its_last_token_tells_all(engine: EngineProcess) -> None:
    long = list(range(300, 1100))  # more than a batch of 255
    if "last" in engine.process.args:  # type: ignore[operator]
        assert len(embed(engine, long)[0]) == 128
    else:
        assert "too large" in post(engine, "/v1/embeddings", 500, input=long)["error"]["message"]


def test_embeddings_do_not_disturb_completions(engine: EngineProcess) -> None:
    alone = engine.complete(prompt=list(range(300, 330)), n_predict=60, return_tokens=True, ignore_eos=True, cache_prompt=False)
    vector = embed(engine, TEXTS[1])[0]
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(embed, engine, TEXTS[1]) for _ in range(20)]
        again = engine.complete(
            prompt=list(range(300, 330)), n_predict=60, return_tokens=True, ignore_eos=True, cache_prompt=False, id_slot=0
        )
        assert all(close(answer.result()[0], vector) for answer in answers)
    assert again["tokens"] == alone["tokens"]


def test_pooling_none_gives_a_vector_for_each_token(model: Path) -> None:
    with running_engine("-m", str(model), *SLOTS, "--embeddings", "--pooling", "none") as engine:
        prompt = list(range(300, 310))
        alone = engine.complete(prompt=prompt, n_predict=8, return_tokens=True)
        vectors = post(engine, "/embeddings", content=[prompt, prompt[:4]])
        assert [len(item["embedding"]) for item in vectors] == [10, 4]
        assert all(close(a, b) for a, b in zip(vectors[0]["embedding"], vectors[1]["embedding"], strict=False))
        assert not math.isclose(math.hypot(*vectors[0]["embedding"][0]), 1, abs_tol=1e-2)
        assert "none" in post(engine, "/v1/embeddings", 400, input="a")["error"]["message"]
        again = engine.complete(prompt=prompt, n_predict=8, return_tokens=True, cache_prompt=False)
        assert again["tokens"] == alone["tokens"]


def test_without_the_flag_there_are_none(model: Path) -> None:
    with running_engine("-m", str(model), "-c", "512") as engine:
        for path, flag in (("/embedding", "--embeddings"), ("/v1/embeddings", "--embeddings"), ("/v1/rerank", "--reranking")):
            error = post(engine, path, 501, input="a", query="a", documents=["b"])["error"]
            assert error["type"] == "not_supported_error"
            assert flag in error["message"]


def test_reranking(ranker: Path) -> None:
    documents = ["the cold slot", "a warm slot", "nothing of the kind", "token token"]
    with running_engine("-m", str(ranker), *SLOTS, "--reranking") as engine:
        answer = post(engine, "/v1/rerank", query="which slot is warm", documents=documents, model="mine")
        scores = [item["relevance_score"] for item in answer["results"]]
        assert (answer["object"], answer["model"]) == ("list", "mine")
        assert sorted(item["index"] for item in answer["results"]) == [0, 1, 2, 3]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) == 4
        for place, document in enumerate(documents):
            alone = post(engine, "/reranking", query="which slot is warm", documents=[document])
            together = next(item for item in answer["results"] if item["index"] == place)
            assert math.isclose(alone["results"][0]["relevance_score"], together["relevance_score"], abs_tol=1e-4)
        pieces = [post(engine, "/tokenize", content=text)["tokens"] for text in ("which slot is warm", *documents)]
        n_tokens = 4 * (len(pieces[0]) + 1) + sum(map(len, pieces[1:]))  # a beginning for each
        assert answer["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        best = post(engine, "/rerank", query="which slot is warm", texts=documents, top_n=2, return_text=True)
        assert [(item["index"], item["score"]) for item in best] == [
            (item["index"], item["relevance_score"]) for item in answer["results"][:2]
        ]
        assert best[0]["text"] == documents[best[0]["index"]]
        assert "rerank" in post(engine, "/v1/embeddings", 400, input="a")["error"]["message"]
        for body in ({"documents": documents}, {"query": 5, "documents": documents}, {"query": "a"}):
            post(engine, "/rerank", 400, **body)
        for documents_given in ([], None, 123, [1, 2]):
            post(engine, "/rerank", 400, query="a", documents=documents_given)


def test_a_model_without_a_head_cannot_rerank(model: Path) -> None:
    with running_engine("-m", str(model), "-c", "512", "--reranking", ready=False) as engine:
        assert engine.process.wait(60) == 1
        assert "cannot rerank: it has no head that makes a score" in engine.output()
        assert "Traceback" not in engine.output()
