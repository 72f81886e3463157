"""Adapters, embeddings, reranking, infill and context shift, against a stock llama-server with the same files and requests."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.engine import EngineProcess, running_engine
from tests.support.stock_variants import stock_with
from tests.support.tiny_variants import SMALL, write_infill_model, write_lora, write_ranking_model, write_small_model

pytestmark = pytest.mark.model

SLOTS = ("-np", "2", "-c", "4096", "--no-kv-unified", "-b", "512")
TEXTS = ["the cold slot", "a warm queue of many requests", "token"]


def alike(a: Any, b: Any) -> bool:
    """The same JSON, with numbers as close as single precision brings them."""
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[name], b[name]) for name in a)
    return bool(a == b)


def both(stock: httpx2.Client, engine: EngineProcess, path: str, body: Any = None) -> Any:
    """The answer that both give."""
    method = "GET" if body is None else "POST"
    theirs, ours = (client.request(method, path, json=body) for client in (stock, engine.client))
    assert theirs.status_code == ours.status_code, f"{theirs.text}\n{ours.text}"
    assert alike(theirs.json(), ours.json()), f"{theirs.text}\n{ours.text}"
    return ours.json()


def generation(prompt: list[int], n: int, **more: Any) -> dict[str, Any]:
    shown = ["tokens", "truncated", "stop_type", "tokens_cached"]
    wish = {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True, "return_tokens": True, "cache_prompt": False}
    return {**wish, "response_fields": shown, **more}


def test_embeddings(tmp_path: Path) -> None:
    model = write_small_model(tmp_path / "small.gguf")
    pooling = "params.embedding, params.pooling_type = True, llama_pooling_type.LLAMA_POOLING_TYPE_MEAN"
    flags = ("--embeddings", "--pooling", "mean")
    with stock_with(model, pooling) as stock, running_engine("-m", str(model), *SLOTS, *flags) as engine:
        for text in TEXTS:  # one by one: some releases pool prompts that share a batch wrongly
            both(stock, engine, "/v1/embeddings", {"input": text, "model": "x"})
            both(stock, engine, "/embeddings", {"content": text})
            for norm in (-1, 0, 1, 2, 3):
                both(stock, engine, "/embedding", {"input": text, "embd_normalize": norm})
        both(stock, engine, "/v1/embeddings", {"content": TEXTS[0]})
        both(stock, engine, "/v1/embeddings", {"input": list(range(300, 900))})  # too large
        both(stock, engine, "/rerank", {"query": "a", "documents": ["b"]})


def test_reranking(tmp_path: Path) -> None:
    model = write_ranking_model(tmp_path / "ranker.gguf")
    pooling = "params.embedding, params.pooling_type = True, llama_pooling_type.LLAMA_POOLING_TYPE_RANK"
    with stock_with(model, pooling) as stock, running_engine("-m", str(model), *SLOTS, "--reranking") as engine:
        both(stock, engine, "/v1/rerank", {"query": "which slot", "documents": TEXTS, "model": "x"})
        both(stock, engine, "/rerank", {"query": "which slot", "texts": TEXTS, "return_text": True, "top_n": 2})


def test_adapters(tmp_path: Path) -> None:
    model = write_small_model(tmp_path / "small.gguf")
    files = [write_lora(tmp_path / "a.gguf", range(8)), write_lora(tmp_path / "b.gguf", range(8, 24))]
    listed = ", ".join(f"adapter({str(file)!r}, 0.5)" for file in files)
    flags = ("--lora-scaled", ",".join(f"{file}:0.5" for file in files))
    prompt = list(range(300, 360))
    with (
        stock_with(model, f"params.lora_adapters = [{listed}]") as stock,
        running_engine("-m", str(model), *SLOTS, *flags) as engine,
    ):
        both(stock, engine, "/lora-adapters")
        for scales in ((1, 0), (0, 1), (0, 0), (1, 1)):
            both(stock, engine, "/completion", generation(prompt, 20, lora=[{"id": i, "scale": s} for i, s in enumerate(scales)]))
        both(stock, engine, "/completion", generation(prompt, 20, lora=[{"id": 1, "scale": 1}]))
        both(stock, engine, "/lora-adapters", [{"id": 1, "scale": 1.0}])
        both(stock, engine, "/lora-adapters")
        both(stock, engine, "/completion", generation(prompt, 20))
        both(stock, engine, "/lora-adapters", {"id": 1})


def test_context_shift(tmp_path: Path) -> None:
    model = write_small_model(tmp_path / "one.gguf", replace(SMALL, layers=1))
    settings = "params.ctx_shift, params.n_ctx, params.n_keep = True, 512, 9"
    flags = (*SLOTS, "-c", "512", "--context-shift", "--keep", "9")
    prompt = list(range(300, 500))
    with stock_with(model, settings) as stock, running_engine("-m", str(model), *flags) as engine:
        for wish in ({}, {"n_keep": 0, "n_discard": 100}, {"n_keep": -1}, {"n_keep": 1000}):
            # behind the 73rd the two releases of llama.cpp round a tie differently, without a shift too
            assert both(stock, engine, "/completion", generation(prompt, 70, **wish))["truncated"]
        both(stock, engine, "/completion", generation(prompt * 2, 5))  # does not fit


def test_infill(tmp_path: Path) -> None:
    for repository in (True, False):
        model = write_infill_model(tmp_path / f"fim-{repository}.gguf", repository=repository)
        with stock_with(model) as stock, running_engine("-m", str(model), *SLOTS) as engine:
            gap = {"input_prefix": "the cold " * 300, "input_suffix": " queue" * 300, "prompt": "warm"}
            extra = [{"filename": "a", "text": "slot"}, {"text": "batch " * 900}]
            shown = {"n_predict": 6, "temperature": 0, "response_fields": ["content", "tokens_evaluated", "prompt"]}
            both(stock, engine, "/infill", {**gap, **shown})
            both(stock, engine, "/infill", {**gap, **shown, "input_extra": extra})
