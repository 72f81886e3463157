"""The model's own chat template, rendered in a sandbox: it comes out of a model file and is not trusted."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.backends.base import ModelInfo
from engine.http.errors import ApiError
from engine.http.fields import Fields
from engine.http.messages import read_messages, read_tools

_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Whether a template wants what a tool was called with as an object: one that wants text fails with it.
_CALL = {"type": "function", "id": "0", "function": {"name": "probe", "arguments": {"argument": 1}}}
_PROBE: list[dict[str, Any]] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [_CALL]}]


class _Refused(Exception):
    """The template itself says that it cannot take these messages."""


def _raise(message: str) -> None:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


class ChatTemplate:
    """Compiled once for each model. A model without a template gets ChatML, as in llama-server.

    `source` takes the place of the model's own. `prefill`: an assistant's message at the end is the beginning of the answer, as
    in llama-server. `defaults` are for `chat_template_kwargs`.
    """

    def __init__(
        self, info: ModelInfo, source: str = "", *, prefill: bool = True, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.source = _CHATML if source == "chatml" else source or info.chat_template or _CHATML
        self._info = info
        self._prefill = prefill
        self._defaults = dict(defaults or {})
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        env.globals.update(raise_exception=_raise, strftime_now=_now)
        env.filters["tojson"] = _tojson
        try:
            self._template: jinja2.Template | None = env.from_string(self.source)
            self._fault = ""
        except jinja2.TemplateError as exc:
            self._template, self._fault = None, str(exc)
        self._object_arguments = self._can_render(_PROBE)

    def _can_render(self, messages: list[dict[str, Any]]) -> bool:
        try:
            self._render(messages, {}, tools=None, generate=False)
        except ApiError:
            return False
        return True

    def render(self, body: Mapping[str, Any]) -> str:
        """The prompt for the messages of a chat request; ApiError 400 when they do not fit the template."""
        fields = Fields(body)
        messages, tools = read_messages(fields, object_arguments=self._object_arguments), read_tools(fields)
        generate = fields.boolean("add_generation_prompt", default=messages[-1]["role"] != "assistant")
        extra = {**self._defaults, **fields.object("chat_template_kwargs")}
        beginning = ""
        if self._prefill and messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls"):
            beginning, generate = _beginning(body), True
            messages.pop()
            if messages and messages[-1]["role"] == "assistant":
                raise ApiError(400, "Cannot have 2 or more assistant messages at the end of the list.", field="messages")
        return self._render(messages, extra, tools=tools, generate=generate) + beginning

    def _render(
        self, messages: list[dict[str, Any]], extra: Mapping[str, Any], *, tools: list[dict[str, Any]] | None, generate: bool
    ) -> str:
        if self._template is None:
            raise ApiError(500, f"The model's chat template cannot be read: {self._fault}.")
        known = {
            "messages": messages,
            "add_generation_prompt": generate,
            "bos_token": self._info.bos_text,
            "eos_token": self._info.eos_text,
            "tools": tools,
        }
        try:
            text = self._template.render(**{**extra, **known})
        except Exception as exc:  # a template runs any expression, so any exception can come out of it
            raise ApiError(400, f"The chat template cannot take these messages: {exc}.", field="messages") from None
        return self._without_double_bos(text)

    def _without_double_bos(self, text: str) -> str:
        """Tokenizing adds the BOS token again, when the model wants one."""
        bos = self._info.bos_text
        return text[len(bos) :] if self._info.add_bos and bos and text.startswith(bos) else text


def _beginning(body: Mapping[str, Any]) -> str:
    """What the last message says; its parts follow each other without a break, as in llama-server."""
    content: str | list[dict[str, str]] = body["messages"][-1].get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    import json

    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
