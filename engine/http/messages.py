"""The messages and tools of a chat request, checked and brought into the shapes that templates know."""

from __future__ import annotations

from typing import Any

import orjson

from engine.http.errors import ApiError, field_error
from engine.http.fields import Fields

MAX_MESSAGES = 10_000
MAX_ROLE = 64  # characters
MAX_TOOLS = 1024


def read_messages(fields: Fields, *, object_arguments: bool) -> list[dict[str, Any]]:
    """`object_arguments`: the template sees what a tool was called with as an object, not as the text that clients send."""
    messages = fields.array("messages")
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise field_error("messages", f"an array of 1 to {MAX_MESSAGES} messages")
    return [_read_message(message, f"messages[{place}]", object_arguments) for place, message in enumerate(messages)]


def _read_message(message: Any, name: str, object_arguments: bool) -> dict[str, Any]:
    if type(message) is not dict:
        raise field_error(name, "an object")
    role = message.get("role")
    if type(role) is not str or not 1 <= len(role) <= MAX_ROLE:  # templates know more roles than OpenAI does
        raise field_error(f"{name}.role", "a string such as system, user, assistant or tool")
    read = {**message, "role": role, "content": _read_content(message.get("content"), f"{name}.content")}
    if message.get("tool_calls") is None:
        read.pop("tool_calls", None)
    else:
        read["tool_calls"] = _read_calls(message["tool_calls"], f"{name}.tool_calls", object_arguments)
    return read


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


def _read_calls(calls: Any, name: str, object_arguments: bool) -> list[dict[str, Any]]:
    wanted = 'an array of {"type": "function", "function": {"name": ..., "arguments": ...}}'
    if type(calls) is not list:
        raise field_error(name, wanted)
    read = []
    for call in calls:
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict or type(function.get("name")) is not str:
            raise field_error(name, wanted)
        arguments = function.get("arguments", "{}")
        if type(arguments) is str and object_arguments:
            try:
                arguments = orjson.loads(arguments or "{}")
            except orjson.JSONDecodeError:
                raise field_error(name, f"{wanted}, with arguments that are JSON") from None
        read.append({**call, "type": "function", "function": {**function, "arguments": arguments}})
    return read


def read_tools(fields: Fields) -> list[dict[str, Any]] | None:
    """The tools that the template is to offer to the model; None without any, or when `tool_choice` is none."""
    tools = fields.array("tools")
    wanted = 'an array of {"type": "function", "function": {"name": ...}}'
    for tool in tools:
        function = tool.get("function") if type(tool) is dict else None
        if type(function) is not dict or type(function.get("name")) is not str or tool.get("type", "function") != "function":
            raise field_error("tools", wanted)
    if len(tools) > MAX_TOOLS:
        raise field_error("tools", f"at most {MAX_TOOLS} tools")
    fields.boolean("parallel_tool_calls", default=True)
    choice = fields.raw("tool_choice")[1]
    if choice not in (None, "none", "auto"):
        known = choice == "required" or type(choice) is dict
        message = "a call cannot be forced, since answers are not parsed for calls" if known else "that is no choice"
        raise ApiError(400, f'Field "tool_choice" must be "auto" or "none": {message}.', field="tool_choice")
    return tools if tools and choice != "none" else None
