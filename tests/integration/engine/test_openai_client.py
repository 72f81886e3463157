"""OpenAI's own Python client against the engine: what users bring along must work as it is."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.engine import EngineProcess, running_engine

pytestmark = pytest.mark.model

KEY = "sk-test"
ASKED: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hello"},
]


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with running_engine("-np", "2", "-c", "4096", "--no-kv-unified", "--alias", "small", "--api-key", KEY) as engine:
        engine.client.headers["Authorization"] = f"Bearer {KEY}"
        yield engine


@pytest.fixture
def client(engine: EngineProcess) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(api_key=KEY, base_url=f"{engine.url}/v1", max_retries=0, timeout=60, http_client=http) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "llamacpp"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("large")


def test_completion_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="small", prompt="hello", max_tokens=6, temperature=0)
    assert answer.object == "text_completion"
    assert re.match(r"b\d+-", answer.system_fingerprint or "")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (6, 6 + answer.usage.prompt_tokens)
    stream = client.completions.create(
        model="small", prompt="hello", max_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == answer.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="small", messages=ASKED, max_completion_tokens=6, temperature=0)
    assert answer.object == "chat.completion"
    message = answer.choices[0].message
    assert (message.role, bool(message.content), answer.choices[0].finish_reason) == ("assistant", True, "length")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens in range(answer.usage.prompt_tokens)
    stream = client.chat.completions.create(model="small", messages=ASKED, max_completion_tokens=6, temperature=0, stream=True)
    first, *rest = list(stream)
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", None)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in rest) == message.content
    assert rest[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in rest)


def test_the_clients_own_stream_helper_puts_the_answer_together(client: openai.OpenAI) -> None:
    grammar = {"grammar": 'root ::= "a" [b-d]{3}'}
    with client.chat.completions.stream(model="small", messages=ASKED, max_tokens=20, n=2, extra_body=grammar) as stream:
        whole = stream.get_final_completion()
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert all(re.fullmatch("a[b-d]{3}", choice.message.content or "") for choice in whole.choices)


def test_a_stop_string_ends_the_text(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="small", prompt="hello", max_tokens=20, temperature=0).choices[0].text
    stop = whole[9:13]
    for stream in (False, True):
        if stream:
            chunks = list(
                client.completions.create(model="small", prompt="hello", max_tokens=20, temperature=0, stop=stop, stream=True)
            )
            text, reason = "".join(chunk.choices[0].text for chunk in chunks), chunks[-1].choices[0].finish_reason
        else:
            choice = client.completions.create(model="small", prompt="hello", max_tokens=20, temperature=0, stop=[stop]).choices[
                0
            ]
            text, reason = choice.text, choice.finish_reason
        assert (text, reason) == (whole[: whole.index(stop)], "stop")


def test_several_choices_and_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="small", prompt=["hello", "world"], n=2, max_tokens=3, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


def test_logprobs_belong_to_the_text(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": "small", "messages": ASKED, "max_tokens": 5, "temperature": 0}
    choice = client.chat.completions.create(**ask, logprobs=True, top_logprobs=3).choices[0]
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    assert "".join(token.token for token in content) == choice.message.content
    assert all(token.logprob <= 0 and token.bytes and len(token.top_logprobs) == 3 for token in content)
    streamed = [
        token
        for chunk in client.chat.completions.create(**ask, logprobs=True, top_logprobs=3, stream=True)
        if chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content or []
    ]
    assert [(token.token, token.bytes, len(token.top_logprobs)) for token in streamed] == [
        (token.token, token.bytes, len(token.top_logprobs)) for token in content
    ]
    plain = client.completions.create(model="small", prompt="hello", max_tokens=3, temperature=0, logprobs=2).choices[0]
    assert plain.logprobs is not None
    assert "".join(plain.logprobs.tokens or []) == plain.text
    assert [len(top) for top in plain.logprobs.top_logprobs or []] == [2, 2, 2]


SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["color", "n"],
    "additionalProperties": False,
}


def test_a_schema_shapes_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="small",
        messages=ASKED,
        max_tokens=200,
        seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "paint", "schema": SCHEMA, "strict": True}},
    )
    value = json.loads(answer.choices[0].message.content or "")
    assert value.keys() == {"color", "n"}
    assert value["color"] in ("red", "green")
    assert 1 <= value["n"] <= 9
    assert answer.choices[0].finish_reason == "stop"


def test_faults_come_as_the_clients_own_errors(engine: EngineProcess, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="small", messages=ASKED, temperature="hot")  # type: ignore[call-overload]
    assert refused.value.type == "invalid_request_error"
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["field"] == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="small", prompt=[1000] * 3000)
    assert long.value.type == "exceed_context_size_error"
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(api_key="wrong", base_url=f"{engine.url}/v1", max_retries=0, http_client=http) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
        with pytest.raises(openai.AuthenticationError):
            stranger.completions.create(model="small", prompt="hello", stream=True)
    with pytest.raises(openai.NotFoundError):
        client.images.generate(model="small", prompt="a cat")


def is_idle(slots: list[dict[str, Any]]) -> bool:
    return not any(slot["is_processing"] for slot in slots)


def test_closing_a_stream_frees_its_slot_within_an_iteration_or_so(engine: EngineProcess, client: openai.OpenAI) -> None:
    body = {"ignore_eos": True, "n_predict": -1, "prompt": "on and on"}
    stream = client.completions.create(model="small", prompt="on and on", stream=True, extra_body=body)
    for _ in range(5):
        next(stream)
    stream.close()
    engine.wait_until(is_idle, timeout=5)
    last = engine.get("/scheduler")["iteration"]
    time.sleep(0.2)
    assert engine.get("/scheduler")["iteration"] == last  # nothing computes for a reader that is gone


async def test_the_async_client_answers_side_by_side_and_a_cancelled_call_leaves_nothing(engine: EngineProcess) -> None:
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{engine.url}/v1", max_retries=0, http_client=http) as client:

        async def read(prompt: str) -> str:
            stream = await client.completions.create(model="small", prompt=prompt, max_tokens=8, temperature=0, stream=True)
            return "".join([chunk.choices[0].text async for chunk in stream])

        prompts = ["hello", "world", "queue", "policy", "server"]
        together = await asyncio.gather(*map(read, prompts))
        assert list(together) == [await read(prompt) for prompt in prompts]
        endless = client.completions.create(model="small", prompt="on", extra_body={"n_predict": -1, "ignore_eos": True})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(endless, 0.3)
        await asyncio.to_thread(engine.wait_until, is_idle, 5)


def test_embeddings() -> None:
    http = openai.DefaultHttpxClient(trust_env=False)
    with (
        running_engine("-np", "2", "-c", "1024", "--embeddings", "--pooling", "mean") as engine,
        openai.OpenAI(api_key="none", base_url=f"{engine.url}/v1", max_retries=0, http_client=http) as client,
    ):
        answer = client.embeddings.create(model="small", input=["hello", "world", "hello"])
        one, other, again = (entry.embedding for entry in answer.data)
        assert one == again != other
        assert sum(value * value for value in one) == pytest.approx(1, abs=1e-4)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
        plain = client.embeddings.create(model="small", input="hello", encoding_format="float").data[0].embedding
        assert plain == pytest.approx(one, abs=1e-6)
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model="small", input=[])
