"""Behaviours that llama-server's own server tests state, and that no other test here shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine, sse_data

pytestmark = pytest.mark.model

N_BATCH, N_CTX_SLOT = 64, 512
CHAT = [{"role": "system", "content": "You are a coding assistant."}, {"role": "user", "content": "Write an example"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    flags = (
        "-np",
        "2",
        "-c",
        str(2 * N_CTX_SLOT),
        "-b",
        str(N_BATCH),
        "-ub",
        str(N_BATCH),
        "--no-kv-unified",
        "--alias",
        "small",
    )
    with running_engine(*flags) as engine:
        yield engine


def chat(engine: EngineProcess, **body: Any) -> Any:
    return engine.client.post("/chat/completions", json={"messages": CHAT, "max_tokens": 12, **body})


@pytest.mark.parametrize(
    ("wish", "shape"),
    [
        ({"response_format": {"type": "json_object", "schema": {"const": "42"}}}, '"42"'),
        ({"response_format": {"type": "json_object", "schema": {"items": [{"type": "integer"}]}}}, r"\[\s*-?\d*"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "foooooo"}}}}, '"foooooo"'),
        ({"response_format": {"type": "json_object"}}, r"\{"),
        ({"response_format": {"type": "text"}}, ""),
        ({"json_schema": {"const": "42"}}, '"42"'),
        ({"grammar": 'root ::= "a"{5,5}'}, "a{5}"),
    ],
)
def test_answers_follow_what_was_asked_for(engine: EngineProcess, wish: dict[str, Any], shape: str) -> None:
    answer = chat(engine, **wish)
    assert answer.status_code == 200, answer.text
    assert re.match(shape, answer.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "wish",
    [{"type": "sound"}, {"type": "json_object", "schema": 123}, {"type": "json_object", "schema": {"type": 123}},
     {"type": "json_object", "schema": {"type": "hiccup"}}],
)  # fmt: skip
def test_formats_that_are_none_are_refused(engine: EngineProcess, wish: dict[str, Any]) -> None:
    answer = chat(engine, response_format=wish)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"].startswith("response_format")


def test_one_seed_gives_one_text_and_others_others(engine: EngineProcess) -> None:
    def text(seed: int) -> str:
        return str(engine.complete(prompt="a b c", n_predict=16, seed=seed, temperature=1.0, cache_prompt=False)["content"])

    assert text(42) == text(42)
    assert len({text(seed) for seed in range(4)}) == 4


def test_prompts_of_every_shape_are_one_prompt(engine: EngineProcess) -> None:
    text = "hello world"
    tokens = engine.client.post("/tokenize", json={"content": text, "add_special": True}).json()["tokens"]
    prompts = [tokens, text, {"prompt_string": text}]
    answers = engine.client.post("/completion", json={"prompt": prompts, "n_predict": 6, "temperature": 0}).json()
    assert len({answer["content"] for answer in answers}) == 1
    assert engine.complete(prompt=[*tokens, text, 300], n_predict=1)["tokens_evaluated"] == 2 * len(tokens) + 1 - has_bos(engine)


def has_bos(engine: EngineProcess) -> int:
    """Tokens that are added before a text, but not before a text within a prompt."""
    with_, without = (
        engine.client.post("/tokenize", json={"content": "hello", "add_special": each}).json() for each in (True, False)
    )
    return len(with_["tokens"]) - len(without["tokens"])


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("as_text", [False, True])
def test_biases_keep_tokens_out(engine: EngineProcess, as_object: bool, as_text: bool) -> None:
    body: dict[str, Any] = {"prompt": "hello", "n_predict": 24, "return_tokens": True, "cache_prompt": False}
    usual = engine.complete(**body)["tokens"]
    pieces = engine.client.post("/detokenize", json={"tokens": [usual[0]]}).json()["content"]
    token = pieces if as_text else usual[0]
    bias = {str(token): -100} if as_object else [[token, -100]]
    banned = engine.client.post("/tokenize", json={"content": pieces}).json()["tokens"] if as_text else [usual[0]]
    assert not set(banned) & set(engine.complete(**body, logit_bias=bias)["tokens"])


@pytest.mark.parametrize("stream", [False, True])
def test_each_token_has_as_many_probabilities_as_were_asked_for(engine: EngineProcess, stream: bool) -> None:
    body = {"prompt": "hello", "n_predict": 5, "n_probs": 10, "ignore_eos": True}
    if stream:
        with engine.stream(**body) as events:
            found = [entry for event in events for entry in event.get("completion_probabilities", ())]
    else:
        found = engine.complete(**body)["completion_probabilities"]
    assert len(found) == 5
    for entry in found:
        assert len(entry["top_logprobs"]) == 10
        assert all(top["logprob"] <= 0 and isinstance(top["token"], str) and top["bytes"] for top in entry["top_logprobs"])


def test_progress_is_told_at_the_first_visit_and_after_each_batch(engine: EngineProcess) -> None:
    body = {
        "messages": [{"role": "user", "content": "This is a test " * 20}],
        "max_tokens": 3,
        "stream": True,
        "return_progress": True,
    }

    def progress() -> list[dict[str, int]]:
        with engine.client.stream("POST", "/v1/chat/completions", json=body) as response:
            events = list(sse_data(response.iter_lines()))
        return [event["prompt_progress"] for event in events if "prompt_progress" in event]

    first = progress()
    total, cached = first[0]["total"], first[0]["cache"]
    assert [step["processed"] for step in first] == [*range(cached, total, N_BATCH), total]
    again = progress()
    assert [step["processed"] for step in again] == [total - 1, total]
    assert {step["cache"] for step in again} == {total - 1}


def test_a_chat_streams_its_role_first_and_its_timings_last(engine: EngineProcess) -> None:
    wish = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4, "ignore_eos": True}
    with engine.client.stream("POST", "/chat/completions", json={"messages": CHAT, **wish}) as response:
        first, *middle, final, usage = list(sse_data(response.iter_lines()))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert "timings" not in first
    assert all("role" not in event["choices"][0]["delta"] and "timings" not in event for event in middle)
    assert final["choices"][0]["delta"] == {}
    assert usage["choices"] == []
    assert usage["timings"]["predicted_n"] == usage["usage"]["completion_tokens"] == 4
    assert len({event["id"] for event in (first, *middle, final, usage)}) == 1
    assert first["id"].startswith("chatcmpl-")
    assert first["model"] == "small"


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_is_too_long_is_refused_with_its_sizes(engine: EngineProcess, stream: bool) -> None:
    answer = chat(engine, messages=CHAT * 100, stream=stream)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["n_ctx"]) == ("exceed_context_size_error", N_CTX_SLOT)
    assert error["n_prompt_tokens"] > N_CTX_SLOT
    assert "exceeds the available context size" in error["message"]


def test_a_text_that_fills_the_context_is_truncated(engine: EngineProcess) -> None:
    answer = engine.complete(prompt="hello", n_predict=-1, ignore_eos=True)
    assert answer["truncated"] is True
    assert answer["timings"]["predicted_n"] == N_CTX_SLOT - answer["tokens_evaluated"]
    short = engine.complete(prompt="hello", n_predict=64, ignore_eos=True)
    assert (short["truncated"], short["timings"]["predicted_n"]) == (False, 64)


def test_pieces_of_tokens(engine: EngineProcess) -> None:
    text = "This is a test string with unicode 媽 and emoji 🤗"
    tokens = engine.client.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    raw = b"".join(token["piece"].encode() if isinstance(token["piece"], str) else bytes(token["piece"]) for token in tokens)
    assert raw.decode().strip() == text


def test_named_fields_come_under_their_paths(engine: EngineProcess) -> None:
    wanted = ["content", "generation_settings/n_predict", "prompt"]
    answer = engine.complete(prompt="hello", n_predict=3, response_fields=wanted)
    assert answer.keys() == set(wanted)
    assert answer["generation_settings/n_predict"] == 3
    assert "generation_settings" in engine.complete(prompt="hello", n_predict=3, response_fields=[])


def test_no_slot_is_free_whatever_the_parameter_says(engine: EngineProcess) -> None:
    endless: dict[str, Any] = {"prompt": "on", "ignore_eos": True}
    with engine.stream(**endless, id_slot=0) as one, engine.stream(**endless, id_slot=1) as two:
        next(one), next(two)
        refused = engine.client.get("/slots?fail_on_no_slot=0")
        assert engine.client.get("/slots").status_code == 200
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "no slot available")
    assert json.loads(refused.text)["error"]["type"] == "unavailable_error"
    engine.wait_until(lambda slots: not any(slot["is_processing"] for slot in slots))
