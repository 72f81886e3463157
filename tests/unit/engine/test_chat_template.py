"""What a chat request becomes: the model's template with messages, tools and the beginning of an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from engine.backends.base import ModelInfo
from engine.http.chat import ChatTemplate
from engine.http.errors import ApiError
from engine.options import parse_options
from tests.unit.engine.harness import FLAGS, Served, free_backend, served

WITH_TOOLS = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool.function.name }} {% endfor %}</tools>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}({{ call.function.name }} {{ call.function.arguments.items() | list }}){% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
TEXT_ARGUMENTS = (
    "{% for m in messages %}{% for call in m.tool_calls or [] %}{{ '(' + call.function.arguments + ')' }}{% endfor %}{% endfor %}"
)
USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Bern"}'}}


@pytest.fixture
def info() -> ModelInfo:
    return replace(free_backend(parse_options(FLAGS, {})).info, chat_template=WITH_TOOLS)


@pytest.fixture
async def engine() -> AsyncIterator[Served]:
    async with served("--chat-template", WITH_TOOLS) as running:
        yield running


def render(info: ModelInfo, messages: list[dict[str, Any]], **body: Any) -> str:
    return ChatTemplate(info).render({"messages": messages, **body})


def test_tools_reach_the_template_unless_none_is_chosen(info: ModelInfo) -> None:
    assert render(info, [USER], tools=[TOOL]) == "<tools>look_up </tools>[user]hello[assistant]"
    assert render(info, [USER], tools=[TOOL], tool_choice="auto").startswith("<tools>")
    without: list[dict[str, Any]] = [{"tools": [TOOL], "tool_choice": "none"}, {"tools": []}, {"tools": None}, {}]
    for body in without:
        assert render(info, [USER], **body) == "[user]hello[assistant]"


def test_a_call_and_its_result_go_back_to_the_model(info: ModelInfo) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "1", "content": "rain"}
    assert render(info, [USER, called, result]) == "[user]hello[assistant](look_up [('city', 'Bern')])[tool]rain[assistant]"
    text = replace(info, chat_template=TEXT_ARGUMENTS)
    assert render(text, [USER, called]) == '({"city": "Bern"})'


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [5]),
        ("tools", {"type": "function"}),
        ("tools", [{"type": "function"}]),
        ("tools", [{"type": "retrieval", "function": {"name": "x"}}]),
        ("tools", [TOOL] * 1025),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "look_up"}}),
        ("tool_choice", "sometimes"),
        ("parallel_tool_calls", "yes"),
    ],
)
async def test_what_cannot_be_done_with_tools_is_named(engine: Served, field: str, value: Any) -> None:
    body = {"messages": [USER], "tools": [TOOL], "max_tokens": 1, field: value}
    answer = await engine.post("/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


@pytest.mark.parametrize("calls", [5, [5], [{"function": {}}], [{"function": {"name": "x", "arguments": "{"}}]])
def test_calls_that_are_none_are_named(info: ModelInfo, calls: Any) -> None:
    with pytest.raises(ApiError) as refused:
        render(info, [USER, {"role": "assistant", "tool_calls": calls}, USER])
    assert refused.value.details["field"] == "messages[1].tool_calls"


async def test_a_request_with_tools_is_answered_as_text(engine: Served) -> None:
    answer = await engine.post("/v1/chat/completions", {"messages": [USER], "tools": [TOOL], "max_tokens": 2})
    assert answer.json()["choices"][0]["message"].keys() == {"role", "content"}


@pytest.mark.parametrize("beginning", ["Whe", [{"type": "text", "text": "W"}, {"type": "text", "text": "he"}]])
def test_an_assistants_last_message_is_the_beginning_of_the_answer(info: ModelInfo, beginning: Any) -> None:
    messages = [USER, {"role": "assistant", "content": beginning}]
    assert render(info, messages) == "[user]hello[assistant]Whe"
    assert render(info, messages, add_generation_prompt=False) == "[user]hello[assistant]Whe"
    whole = ChatTemplate(info, prefill=False).render({"messages": [USER, {"role": "assistant", "content": "Whe"}]})
    assert whole == "[user]hello[assistant]Whe"  # a message like the others, whose end this template does not mark


def test_two_of_them_at_the_end_are_refused(info: ModelInfo) -> None:
    with pytest.raises(ApiError, match="2 or more assistant messages"):
        render(info, [USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])


def test_flags_of_the_template() -> None:
    options = parse_options([*FLAGS, "--chat-template-kwargs", '{"mood": "calm"}', "--no-prefill-assistant"], {}).server
    assert (options.chat_template_kwargs, options.prefill_assistant) == ({"mood": "calm"}, False)
    by_variable = {"LLAMA_ARG_CHAT_TEMPLATE_KWARGS": '{"mood": 1}', "LLAMA_ARG_PREFILL_ASSISTANT": "0"}
    options = parse_options(FLAGS, by_variable).server
    assert (options.chat_template_kwargs, options.prefill_assistant) == ({"mood": 1}, False)
    with pytest.raises(SystemExit):
        parse_options([*FLAGS, "--chat-template-kwargs", "[]"], {})


def test_variables_of_a_request_win_over_those_of_the_server(info: ModelInfo) -> None:
    template = ChatTemplate(replace(info, chat_template="{{ mood }}{{ n }}"), defaults={"mood": "calm", "n": 1})
    assert template.render({"messages": [USER], "chat_template_kwargs": {"n": 2}}) == "calm2"


async def test_prompt_objects(engine: Served) -> None:
    body = {"prompt": [[300], {"prompt_string": " word"}], "n_predict": 1}
    assert len((await engine.post("/completion", body)).json()) == 2
    for wrong in ({"prompt_string": 5}, {"prompt_string": "a", "multimodal_data": ["x"]}, {}):
        answer = await engine.post("/completion", {"prompt": wrong})
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "prompt")


async def test_what_ignore_eos_bans_is_shown(engine: Served) -> None:
    def biases(answer: dict[str, Any]) -> Any:
        return answer["generation_settings"]["logit_bias"]

    answer = (await engine.post("/completion", {"prompt": "a", "n_predict": 1, "ignore_eos": True})).json()
    assert biases(answer) == [{"token": token, "bias": None} for token in sorted(engine.runner.backend.info.eog)]
    assert biases((await engine.post("/completion", {"prompt": "a", "n_predict": 1})).json()) == []


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_probabilities_end_where_the_text_ends(engine: Served, path: str, stream: bool) -> None:
    body = {"prompt": "a b", "n_predict": 6, "n_probs": 1, "ignore_eos": True, "cache_prompt": False}
    words = (await engine.post("/completion", body)).json()["content"].split()
    stop = f"{words[3]} {words[4]}"
    answer = await engine.post(path, {**body, "stop": [stop], "stream": stream})
    found: list[str] = []
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")] if stream else [answer.text]
    for event in map(json.loads, events):
        for place in (event, *event.get("choices", ())):
            shown = place.get("completion_probabilities") or (place.get("logprobs") or {}).get("content") or []
            found += [entry["token"] for entry in shown]
    assert "".join(found).split() in (words[:3], words[:4])  # the word before may share its token with the space
    assert not any(words[4] in token for token in found)
