"""Samplers, grammars and probabilities through llama.cpp's own chain, on the real engine."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.engine import EngineProcess, running_engine

pytestmark = pytest.mark.model

PROMPT = list(range(5000, 5040))


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with running_engine("-np", "2", "-c", "2048", "--no-kv-unified") as engine:
        yield engine


def tokens_of(engine: EngineProcess, **body: Any) -> list[int]:
    answer = engine.complete(prompt=PROMPT, n_predict=24, return_tokens=True, id_slot=0, cache_prompt=False, **body)
    tokens: list[int] = answer["tokens"]
    return tokens


def refusal(engine: EngineProcess, path: str = "/completion", **body: Any) -> dict[str, Any]:
    response = engine.client.post(path, json={"prompt": "a", "n_predict": 1, **body})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def test_greedy_with_every_cut_is_greedy(engine: EngineProcess) -> None:
    plain = tokens_of(engine)
    cuts = {"top_k": 2, "top_p": 0.3, "min_p": 0.5, "top_n_sigma": 1.0, "dynatemp_range": 0.5, "mirostat": 2}
    assert tokens_of(engine, **cuts) == plain
    assert tokens_of(engine, temperature=1.0, top_k=1) == plain


@pytest.mark.parametrize("penalty", [{"presence_penalty": 5}, {"frequency_penalty": 5}, {"repeat_penalty": 1.5}])
def test_penalties_count_the_prompt_within_their_window(engine: EngineProcess, penalty: dict[str, float]) -> None:
    def first(**body: Any) -> int:
        prompt = [6000, *PROMPT]
        wish = {"logit_bias": [[6000, 60], [6001, 57]], "n_predict": 1, "return_tokens": True, **penalty, **body}
        token: int = engine.complete(prompt=prompt, **wish)["tokens"][0]
        return token

    assert first(repeat_last_n=0) == 6000
    assert first(repeat_last_n=8) == 6000
    assert first(repeat_last_n=len(PROMPT) + 1) == 6001
    assert first(repeat_last_n=-1) == 6001


def test_a_presence_penalty_makes_every_token_new(engine: EngineProcess) -> None:
    banned = tokens_of(engine, presence_penalty=1000, repeat_last_n=-1)
    assert len(set(banned)) == len(banned)
    assert not set(banned) & set(PROMPT)


def test_dry_breaks_a_repetition(engine: EngineProcess) -> None:
    forced = {"logit_bias": [[6000, 50], [6001, 50.01]], "temperature": 0}
    assert len(set(tokens_of(engine, **forced))) == 1
    assert len(set(tokens_of(engine, **forced, dry_multiplier=100, dry_allowed_length=1, dry_penalty_last_n=-1))) > 1


@pytest.mark.parametrize(
    "links",
    [
        {"mirostat": 1},
        {"mirostat": 2, "mirostat_tau": 3},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0001},
        {"typical_p": 0.2},
        {"top_n_sigma": 0.5},
        {"dynatemp_range": 1.0},
        {"samplers": ["temperature", "top_k"], "top_k": 3},
        {"samplers": "", "temperature": 3},
        {"samplers": ["adaptive_p"], "adaptive_target": 0.3},
    ],
)
def test_each_link_changes_what_is_drawn_and_a_seed_repeats_it(engine: EngineProcess, links: dict[str, Any]) -> None:
    plain = {"seed": 11, "temperature": 1.2, "top_p": 1.0, "min_p": 0.0, "top_k": 0}
    once = tokens_of(engine, **{**plain, **links})
    assert once == tokens_of(engine, **{**plain, **links})
    assert once != tokens_of(engine, **plain)


def test_without_a_temperature_link_temperature_0_does_not_mean_greedy(engine: EngineProcess) -> None:
    drawn = {tuple(tokens_of(engine, samplers=["top_k"], temperature=0, seed=seed)) for seed in range(4)}
    assert len(drawn) > 1


def test_biases_in_every_shape(engine: EngineProcess) -> None:
    usual = tokens_of(engine)[0]
    text = engine.client.post("/detokenize", json={"tokens": [6000]}).json()["content"]
    tokens = engine.client.post("/tokenize", json={"content": text}).json()["tokens"]
    for bias in ([[usual, False]], {str(usual): False}, {str(usual): -1000}, [[usual, -1e6]]):
        assert usual not in tokens_of(engine, logit_bias=bias)
    for bias in ([[text, 500]], {text: 500}):
        assert set(tokens_of(engine, logit_bias=bias)) <= set(tokens)
    assert refusal(engine, logit_bias=[[10**6, 1]])["field"] == "logit_bias"


def test_a_grammar_holds_and_then_ends_the_answer(engine: EngineProcess) -> None:
    for seed in range(3):
        answer = engine.complete(
            prompt=PROMPT, grammar='root ::= ("yes" | "no") [0-9]{3}', temperature=1.5, seed=seed, n_predict=50
        )
        assert re.fullmatch(r"(yes|no)\d{3}", answer["content"])
        assert answer["stop_type"] == "eos"


def test_where_a_grammar_leaves_only_what_was_banned_the_ban_yields(engine: EngineProcess) -> None:
    answer = engine.complete(prompt=PROMPT, grammar='root ::= "a"', ignore_eos=True, n_predict=5)
    assert answer["content"] == "a"
    assert answer["stop_type"] == "limit"
    every_letter = [[chr(code), False] for code in range(97, 123)]
    answer = engine.complete(prompt=PROMPT, grammar='root ::= "abc"', logit_bias=every_letter, n_predict=50)
    assert answer["content"] == "abc"
    typical = {"typical_p": 0.5, "temperature": 2, "xtc_probability": 1, "xtc_threshold": 0.01, "repeat_penalty": 2}
    assert engine.complete(prompt=PROMPT, grammar='root ::= "é中" "!"', n_predict=50, **typical)["content"] == "é中!"


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= foo",
        'other ::= "a"',
        "((((",
        'root ::= root "a"',
        'root ::= "a"{3,2}',
        'root ::= "a"{1,1000000}',
        "root ::= <[5]>",
        r"root ::= [\U00110000]",
        r"root ::= [^\x00-\U0010FFFF]",
        r'root ::= "\x00"',
        "root ::= []",
    ],
)
def test_a_bad_grammar_names_its_field_and_the_server_lives_on(engine: EngineProcess, grammar: str) -> None:
    assert refusal(engine, grammar=grammar)["field"] == "grammar"
    assert engine.client.get("/health").status_code == 200


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["x", "yz"]}, "count": {"type": "integer", "minimum": 3, "maximum": 9}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "wish",
    [
        {"json_schema": SCHEMA},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
    ],
)
def test_a_schema_shapes_the_answer(engine: EngineProcess, wish: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 200, "temperature": 0, **wish}
    content = engine.client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    found = json.loads(content)
    assert found["name"] in ("x", "yz")
    assert 3 <= found["count"] <= 9


def test_a_json_object_begins_as_one(engine: EngineProcess) -> None:
    answer = engine.complete(prompt=PROMPT, response_format={"type": "json_object"}, n_predict=20)
    assert answer["content"].startswith("{")


def test_bad_schemas_name_their_field(engine: EngineProcess) -> None:
    assert refusal(engine, json_schema={"type": "nope"})["field"] == "json_schema"
    assert refusal(engine, json_schema=5)["field"] == "json_schema"
    assert refusal(engine, json_schema={"$ref": "https://example.org/schema"})["field"] == "json_schema"
    assert refusal(engine, response_format={"type": "xml"})["field"] == "response_format"
    assert refusal(engine, grammar='root ::= "a"', json_schema=SCHEMA)["field"] == "grammar"


def probabilities(entry: dict[str, Any]) -> list[float]:
    return [math.exp(top["logprob"]) for top in entry["top_logprobs"]]


def test_native_probabilities(engine: EngineProcess) -> None:
    answer = engine.complete(prompt=PROMPT, n_predict=4, n_probs=3, return_tokens=True)
    found = answer["completion_probabilities"]
    assert [entry["id"] for entry in found] == answer["tokens"]
    assert answer["content"].encode() == b"".join(bytes(entry["bytes"]) for entry in found)
    for entry in found:
        assert entry["top_logprobs"][0]["id"] == entry["id"]  # greedy: the drawn token is the most probable
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]
        assert len(entry["top_logprobs"]) == 3
        assert probabilities(entry) == sorted(probabilities(entry), reverse=True)
    everything = engine.complete(prompt=PROMPT, n_predict=1, n_probs=1000)["completion_probabilities"][0]
    assert 0 < sum(probabilities(everything)) <= 1 + 1e-9
    assert "completion_probabilities" not in engine.complete(prompt=PROMPT, n_predict=1)


def test_probabilities_in_a_stream_come_with_their_tokens(engine: EngineProcess) -> None:
    whole = engine.complete(prompt=PROMPT, n_predict=6, n_probs=2)["completion_probabilities"]
    with engine.stream(prompt=PROMPT, n_predict=6, n_probs=2) as events:
        streamed = [entry for event in events for entry in event.get("completion_probabilities", [])]
    assert [entry["id"] for entry in streamed] == [entry["id"] for entry in whole]
    assert all(math.isclose(a["logprob"], b["logprob"], abs_tol=1e-3) for a, b in zip(streamed, whole, strict=True))


def test_openai_logprobs(engine: EngineProcess) -> None:
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "temperature": 0,
    }
    choice = engine.client.post("/v1/chat/completions", json=body).json()["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == choice["message"]["content"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    legacy = engine.client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 3, "logprobs": 2, "temperature": 0}).json()
    logprobs = legacy["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == legacy["choices"][0]["text"]
    assert len(logprobs["token_logprobs"]) == len(logprobs["content"]) == 3
    assert all(len(top) == 2 for top in logprobs["top_logprobs"])
    streamed = engine.client.post("/v1/chat/completions", json={**body, "stream": True}).text
    assert streamed.count('"top_logprobs"') == 3
    assert refusal(engine, top_logprobs=2)["field"] == "top_logprobs"
    assert refusal(engine, n_probs=2, post_sampling_probs=True, mirostat=1)["field"] == "post_sampling_probs"


def test_only_who_asks_gets_probabilities(engine: EngineProcess) -> None:
    body = {"prompt": [PROMPT, PROMPT], "n_predict": 3, "n_probs": 1}
    both = engine.client.post("/completion", json=body).json()
    assert [len(answer["completion_probabilities"]) for answer in both] == [3, 3]
    child = engine.client.post("/completion", json={"prompt": PROMPT, "n_predict": 3, "n_cmpl": 2, "n_probs": 1}).json()
    assert [len(answer["completion_probabilities"]) for answer in child] == [3, 3]


EXTREMES: tuple[dict[str, Any], ...] = (
    {"temperature": 1e6, "top_k": 0, "top_p": 1, "min_p": 0},
    {"temperature": 1e-6, "dynatemp_range": 1e6, "dynatemp_exponent": -1000},
    {"top_p": -1, "typical_p": -1, "min_p": 5, "top_n_sigma": 1e-6},
    {"xtc_probability": 1e6, "xtc_threshold": -1e6, "min_keep": 2**31 - 1},
    {"typical_p": 1e-6, "min_keep": 2**31 - 1, "top_p": 1e-6},
    {"mirostat": 1, "mirostat_tau": 0, "mirostat_eta": 1000},
    {"mirostat": 2, "mirostat_tau": 1000, "mirostat_eta": 0, "temperature": 1e6},
    {"repeat_penalty": 1000, "presence_penalty": -1000, "frequency_penalty": 1000, "repeat_last_n": 2**31 - 1},
    {"dry_multiplier": 1000, "dry_base": 1000, "dry_allowed_length": 0, "dry_penalty_last_n": 2**31 - 1},
    {"dry_multiplier": -1000, "dry_base": -1000, "dry_allowed_length": 2**31 - 1, "dry_sequence_breakers": ["\u0000", "é" * 40]},
    {"samplers": ["adaptive_p", "xtc", "temperature"], "adaptive_target": 1.0, "adaptive_decay": 0.0},
    {"logit_bias": {str(token): False for token in range(16384)}},
    {"logit_bias": {"": 5, "a": 1e6, "\u0000": False}},
)


@pytest.mark.parametrize("wish", EXTREMES)
@pytest.mark.parametrize("grammar", ["", "root ::= [a-z]+"])
def test_extreme_wishes_are_answered(engine: EngineProcess, wish: dict[str, Any], grammar: str) -> None:
    body = {"prompt": [*PROMPT, *PROMPT], "n_predict": 12, "temperature": 1.0, "seed": 5, "grammar": grammar, **wish}
    response = engine.client.post("/completion", json=body)
    assert response.status_code == 200, response.text
    if grammar:
        assert re.fullmatch("[a-z]*", response.json()["content"])
