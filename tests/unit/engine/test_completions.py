"""Completion routes on the cost model: shapes of requests and answers, errors that name their field, and never a 500."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.http.app import create_app
from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, FakeBackend, Served, served


@pytest.fixture
async def engine() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]


async def test_native_answer_has_llama_servers_fields(engine: Served) -> None:
    answer = (await engine.post("/completion", {"prompt": "one two", "n_predict": 3, "return_tokens": True})).json()
    assert len(answer["tokens"]) == answer["tokens_predicted"] == 3
    assert answer["stop"] is True
    assert (answer["stop_type"], answer["truncated"], answer["index"]) == ("limit", False, 0)
    assert answer["prompt"] == "one two"
    assert answer["tokens_cached"] == answer["tokens_evaluated"] + 2
    assert answer["generation_settings"]["n_predict"] == 3
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == answer["tokens_evaluated"]
    assert timings["predicted_n"] == 3
    assert {"queue_ms", "wait_ms", "hold_ms", "prompt_per_second", "predicted_per_token_ms"} <= timings.keys()


async def test_native_stream(engine: Served) -> None:
    body = {"prompt": "one two", "n_predict": 3, "stream": True, "return_progress": True, "timings_per_token": True}
    response = await engine.post("/completion", body)
    assert response.headers["content-type"] == "text/event-stream"
    assert "[DONE]" not in response.text
    progress, *rest = [event for event in events(response.text) if "prompt_progress" in event]
    assert progress["prompt_progress"]["processed"] == progress["prompt_progress"]["cache"]
    assert rest[-1]["prompt_progress"]["processed"] == rest[-1]["prompt_progress"]["total"]
    tokens = [event for event in events(response.text) if event.get("tokens")]
    assert [event["tokens_predicted"] for event in tokens] == [1, 2, 3]
    assert [event["timings"]["predicted_n"] for event in tokens] == [1, 2, 3]
    final = events(response.text)[-1]
    assert final["stop"]
    assert final["content"] == ""


async def test_chat_stream(engine: Served) -> None:
    body = {
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    response = await engine.post("/v1/chat/completions", body)
    assert response.text.endswith("data: [DONE]\n\n")
    first, *middle, final, usage = events(response.text)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert len(middle) == 3
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in middle)
    assert final["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert len({chunk["id"] for chunk in (first, *middle, final, usage)}) == 1


async def test_oai_completion_with_several_choices(engine: Served) -> None:
    answer = (await engine.post("/v1/completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 2, "model": "mine"})).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["model"] == "mine"
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["object"] == "text_completion"


async def test_children_get_their_own_tokens(engine: Served) -> None:
    answers = (await engine.post("/completion", {"prompt": "a", "n_cmpl": 2, "n_predict": 8, "seed": 7})).json()
    assert [answer["index"] for answer in answers] == [0, 1]
    assert answers[0]["content"] != answers[1]["content"]


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("a", 1), ([300, 301], 1), (["a", "b"], 2), ([[300], "b", [301, " word"]], 3), ([300, " word", 301], 1)],
)
async def test_prompts_in_every_shape(engine: Served, prompt: Any, count: int) -> None:
    answer = (await engine.post("/completion", {"prompt": prompt, "n_predict": 1})).json()
    assert (len(answer) if isinstance(answer, list) else 1) == count


async def test_an_empty_prompt_is_answered_empty(engine: Served) -> None:
    answer = await engine.post("/completion", {"prompt": [[]], "n_predict": 1})
    assert answer.status_code == 400
    assert (await engine.post("/completion", {"prompt": "", "n_predict": 1})).json()["tokens_evaluated"] == 1  # BOS


async def test_response_fields(engine: Served) -> None:
    body = {"prompt": "a", "n_predict": 1, "response_fields": ["content", "timings/prompt_n", "nothing"]}
    assert (await engine.post("/completion", body)).json().keys() == {"content", "timings/prompt_n"}


async def test_generation_ends_at_its_time_once_there_is_a_new_line(engine: Served) -> None:
    body = {"prompt": "a", "n_predict": 200, "ignore_eos": True, "t_max_predict_ms": 1}
    assert (await engine.post("/completion", body)).json()["tokens_predicted"] == 200  # the cost model's words have no new line
    engine.runner.backend.piece = lambda token: b"\n"  # type: ignore[method-assign]
    engine.runner.clock.now = step_clock(0.0008)  # type: ignore[method-assign]
    answer = (await engine.post("/completion", {**body, "prompt": "b"})).json()
    assert answer["stop_type"] == "limit"
    assert answer["tokens_predicted"] < 10


def step_clock(step: float) -> Callable[[], float]:
    """A clock that moves by `step` seconds at each look."""
    times = itertools.count(1)
    return lambda: 2e9 + next(times) * step


async def test_a_fault_of_a_route_is_json_without_details(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, tokens: object) -> str:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("engine.backends.simulated.SimulatedBackend.detokenize", fail)
    async with served() as engine:
        transport = httpx2.ASGITransport(app=create_app(engine.state), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://engine") as client:
            response = await client.post("/detokenize", json={"tokens": [300]})
    assert response.status_code == 500
    assert response.json()["error"] == {"code": 500, "message": "Internal error of the server.", "type": "server_error"}


async def test_the_client_is_named_in_its_slot() -> None:
    backend = FakeBackend(parse_options(FLAGS, {}).backend_options)
    backend.open.clear()
    async with served(backend=backend) as engine:
        headers = {"X-Client-Label": "chat\twarm" + "x" * 60}
        request = asyncio.create_task(engine.client.post("/completion", json={"prompt": "a"}, headers=headers))
        assert await asyncio.to_thread(backend.running.wait, 5)
        seen = "".join(slot["client"] for slot in engine.runner.view()["slots"])
        backend.open.set()
        await request
    assert seen == ("chatwarm" + "x" * 60)[:40]


BAD: list[tuple[str, Any]] = [
    ("prompt", None),
    ("prompt", []),
    ("prompt", {}),
    ("prompt", 5),
    ("prompt", [1, True]),
    ("prompt", [-1]),
    ("prompt", [10**9]),
    ("prompt", [1.5]),
    ("prompt", [10**30]),
    ("n_predict", "ten"),
    ("n_predict", -2),
    ("n_predict", 10**12),
    ("n_predict", 1e300),
    ("n_predict", True),
    ("max_tokens", 1.5),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", 1e300),
    ("top_k", 1e10),
    ("top_p", [1]),
    ("min_p", {}),
    ("seed", -(2**40)),
    ("stop", 5),
    ("stop", [1]),
    ("stop", ["x" * 2049, "y" * 2048]),
    ("stream", "yes"),
    ("cache_prompt", 1),
    ("ignore_eos", "no"),
    ("id_slot", -2),
    ("n_cmpl", 0),
    ("n_cmpl", 3),
    ("logit_bias", [[1]]),
    ("logit_bias", {"x": "much"}),
    ("logit_bias", [[True, 1]]),
    ("samplers", ["top_k", "top_k"]),
    ("samplers", ["unknown"]),
    ("samplers", "kz"),
    ("samplers", 5),
    ("mirostat", 3),
    ("repeat_last_n", -2),
    ("repeat_penalty", 0),
    ("dry_sequence_breakers", []),
    ("dry_sequence_breakers", "x"),
    ("dry_sequence_breakers", [""]),
    ("json_schema", 5),
    ("json_schema", {"type": "object"}),
    ("logit_bias", [[10**9, 1]]),
    ("lora", {"id": 0}),
    ("lora", [5]),
    ("stream_options", []),
    ("sse_ping_interval", "often"),
    ("t_max_predict_ms", "soon"),
    ("response_fields", 5),
    ("grammar", "root ::= x"),
    ("n_probs", -1),
    ("top_logprobs", 2),
    ("logprobs", "yes"),
    ("presence_penalty", "strong"),
    ("response_format", {"type": "json_object"}),
    ("user", 5),
    ("model", 5),
]


@pytest.mark.parametrize(("field", "value"), BAD)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_wrong_is_named(engine: Served, field: str, value: Any, stream: bool) -> None:
    response = await engine.post("/completion", {"prompt": "a", "n_predict": 1, "stream": stream, field: value})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["field"] == field
    assert field in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b'"a"', b'{"temperature": NaN}', b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"[" * 5000]
)
async def test_what_is_no_json_object_is_refused(engine: Served, raw: bytes) -> None:
    for path in ("/completion", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"):
        response = await engine.client.post(path, content=raw)
        assert response.status_code == 400, path
        assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "messages",
    [None, [], "hi", [5], [{"role": "user", "content": 5}], [{"role": "", "content": "a"}], [{"content": "a"}],
     [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]],
)  # fmt: skip
async def test_bad_messages_are_named(engine: Served, messages: Any) -> None:
    response = await engine.post("/v1/chat/completions", {"messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["field"].startswith("messages")


async def test_a_prompt_that_fills_the_slot_is_refused_with_its_sizes(engine: Served) -> None:
    response = await engine.post("/completion", {"prompt": [300] * 256})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["n_prompt_tokens"], error["n_ctx"]) == ("exceed_context_size_error", 256, 256)
    answer = (await engine.post("/completion", {"prompt": [300] * 255, "ignore_eos": True})).json()
    assert (answer["stop_type"], answer["truncated"]) == ("limit", True)


async def test_a_body_that_is_too_large_is_refused(engine: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.http.body.MAX_BODY", 1000)

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    assert (await engine.client.post("/completion", content=b" " * 1001)).status_code == 413
    assert (await engine.client.post("/completion", content=parts())).status_code == 413


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[asyncio.AbstractEventLoop, Served]]:
    """One engine for all examples of a property."""
    loop = asyncio.new_event_loop()
    context = served()
    try:
        yield loop, loop.run_until_complete(context.__aenter__())
    finally:
        loop.run_until_complete(context.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(
    {field for field, _ in BAD} | {"messages", "n", "return_progress", "return_tokens", "timings_per_token", "client"}
)
bodies = st.dictionaries(st.sampled_from(FIELDS), anything, max_size=6).map(lambda body: {"n_predict": 2, "prompt": "a", **body})
PATHS = ["/completion", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"]


@given(path=st.sampled_from(PATHS), body=bodies | anything)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_body_is_a_fault_of_the_server(shared: tuple[asyncio.AbstractEventLoop, Served], path: str, body: Any) -> None:
    loop, engine = shared
    raw = json.dumps(body).encode()
    response = loop.run_until_complete(engine.client.post(path, content=raw))
    assert response.status_code in (200, 400), response.text
    assert '"server_error"' not in response.text
