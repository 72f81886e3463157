"""A prompt in each of the shapes that clients send: string, token ids, a mixture, or an array of those."""

from __future__ import annotations

from typing import Any

from engine.backends.base import Backend
from engine.http.errors import ApiError, field_error

MAX_PROMPTS = 256


def read_prompts(value: Any, backend: Backend, *, name: str = "prompt") -> list[list[int]]:
    """One token list for each prompt. An array that holds a number is one prompt; any other array is an array of prompts."""
    if value is None:
        raise ApiError(400, f'Field "{name}" is required.', field=name)
    if type(value) is list and not any(type(item) in (int, float, bool) for item in value):
        if not 1 <= len(value) <= MAX_PROMPTS:
            raise field_error(name, f"not empty, with at most {MAX_PROMPTS} prompts in one request")
        return [_read_one(item, backend, name) for item in value]
    return [_read_one(value, backend, name)]


def _read_one(value: Any, backend: Backend, name: str) -> list[int]:
    if type(value) is str:
        return backend.tokenize(value, add_special=True)
    if type(value) is dict:
        return backend.tokenize(_text_of(value, name), add_special=True)
    if type(value) is not list or not value:
        raise field_error(name, "a string, an array of token ids, or an array of those")
    if set(map(type, value)) == {int}:
        return check_tokens(value, backend, name)
    tokens: list[int] = []
    for place, item in enumerate(value):
        if type(item) is str:
            tokens += backend.tokenize(item, add_special=place == 0)
        else:
            tokens += check_tokens([item], backend, name)
    return tokens


def _text_of(value: dict[str, Any], name: str) -> str:
    """llama-server's prompt as an object: a text, and media, of which there can be none here."""
    text = value.get("prompt_string")
    if type(text) is not str:
        raise field_error(name, 'a string, token ids, or {"prompt_string": ...}')
    if value.get("multimodal_data"):
        raise field_error(name, "without multimodal_data: this server takes no media")
    return text


def check_tokens(value: list[Any], backend: Backend, name: str) -> list[int]:
    n_vocab = backend.info.n_vocab
    if not value:
        return value
    if set(map(type, value)) != {int} or min(value) < 0 or max(value) >= n_vocab:
        raise field_error(name, f"made of strings and token ids from 0 to {n_vocab - 1}")
    return value
