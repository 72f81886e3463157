"""The model's own chat template, rendered in a sandbox: it comes out of a model file and is not trusted."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.backends.base import ModelInfo
from engine.http.errors import ApiError, field_error
from engine.http.fields import Fields

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MAX_MESSAGES = 10_000


class _Refused(Exception):
    """The template itself says that it cannot take these messages."""


def _raise(message: str) -> None:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


class ChatTemplate:
    """Compiled once for each model. A model without a template gets ChatML, as in llama-server.

    `source` takes the place of the model's own.
    """

    def __init__(self, info: ModelInfo, source: str = "") -> None:
        self.source = _CHATML if source == "chatml" else source or info.chat_template or _CHATML
        self._info = info
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        env.globals.update(raise_exception=_raise, strftime_now=_now)
        env.filters["tojson"] = _tojson
        try:
            self._template: jinja2.Template | None = env.from_string(self.source)
            self._fault = ""
        except jinja2.TemplateError as exc:
            self._template, self._fault = None, str(exc)

    def render(self, body: Mapping[str, Any]) -> str:
        """The prompt for the messages of a chat request; ApiError 400 when they do not fit the template."""
        fields = Fields(body)
        messages = read_messages(fields)
        generate = fields.boolean("add_generation_prompt", default=messages[-1]["role"] != "assistant")
        extra = {str(key): value for key, value in fields.object("chat_template_kwargs").items()}
        if self._template is None:
            raise ApiError(500, f"The model's chat template cannot be read: {self._fault}.")
        known = {
            "messages": messages,
            "add_generation_prompt": generate,
            "bos_token": self._info.bos_text,
            "eos_token": self._info.eos_text,
            "tools": None,
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


def read_messages(fields: Fields) -> list[dict[str, Any]]:
    messages = fields.array("messages")
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise field_error("messages", f"an array of 1 to {MAX_MESSAGES} messages")
    return [_read_message(message, place) for place, message in enumerate(messages)]


def _read_message(message: Any, place: int) -> dict[str, Any]:
    name = f"messages[{place}]"
    if type(message) is not dict:
        raise field_error(name, "an object")
    role = message.get("role")
    if type(role) is not str or role not in _ROLES:
        raise field_error(f"{name}.role", f"one of {', '.join(sorted(_ROLES))}")
    return {**message, "role": role, "content": _read_content(message.get("content"), f"{name}.content")}


def _read_content(content: Any, name: str) -> str:
    """A string, or an array of text parts, which are joined by line ends."""
    if content is None:
        return ""
    if type(content) is str:
        return content
    if type(content) is not list:
        raise field_error(name, "a string or an array of text parts")
    texts: list[str] = []
    for part in content:
        if type(part) is not dict or part.get("type") != "text" or type(part.get("text")) is not str:
            raise field_error(name, 'a string or an array of {"type": "text", "text": ...}')
        texts.append(part["text"])
    return "\n".join(texts)


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    import json

    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
