"""Typed reading of a JSON body: a wrong value is a 400 that names its field, null means the default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson

from engine.http.errors import ApiError, field_error

INT32_MAX = 2**31 - 1


def parse_object(raw: bytes) -> dict[str, Any]:
    """Strict JSON: no NaN, no Infinity, valid UTF-8. An empty body counts as an empty object."""
    try:
        value = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError as exc:
        raise ApiError(400, f"The body is not valid JSON: {exc}.") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return value


class Fields:
    """Readers over one body. Some take aliases of a name: the first one that is present counts.

    `inside` is the name of the field that holds the object, for errors: `stream_options.include_usage`.
    """

    __slots__ = ("_body", "_prefix")

    def __init__(self, body: Mapping[str, Any], inside: str = "") -> None:
        self._body = body
        self._prefix = f"{inside}." if inside else ""

    def _error(self, name: str, wanted: str) -> ApiError:
        return field_error(self._prefix + name, wanted)

    def raw(self, *names: str) -> tuple[str, Any]:
        for name in names:
            value = self._body.get(name)
            if value is not None:
                return name, value
        return names[0], None

    def integer(self, *names: str, default: int, low: int, high: int = INT32_MAX) -> int:
        """The first name that is present counts; the others must be right too."""
        found = [self._integer(name, low, high) for name in names if self._body.get(name) is not None]
        return found[0] if found else default

    def _integer(self, name: str, low: int, high: int) -> int:
        value = self._body[name]
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise self._error(name, f"a whole number from {low} to {high}")
        return value

    def number(self, *names: str, default: float, low: float = -1e30, high: float = 1e30) -> float:
        name, value = self.raw(*names)
        if value is None:
            return default
        if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
            raise self._error(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self._body.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            raise self._error(name, "true or false")
        return value

    def text(self, *names: str, default: str = "") -> str:
        name, value = self.raw(*names)
        if value is None:
            return default
        if type(value) is not str:
            raise self._error(name, "a string")
        return value

    def strings(self, name: str, *, most: int = 1024) -> tuple[str, ...]:
        """A string or an array of strings."""
        value = self._body.get(name)
        if value is None:
            return ()
        if type(value) is str:
            return (value,)
        if type(value) is not list or len(value) > most or any(type(item) is not str for item in value):
            raise self._error(name, f"a string or an array of at most {most} strings")
        return tuple(value)

    def object(self, name: str) -> dict[str, Any]:
        value = self._body.get(name)
        if value is None:
            return {}
        if type(value) is not dict:
            raise self._error(name, "an object")
        return value

    def array(self, name: str) -> list[Any]:
        value = self._body.get(name)
        if value is None:
            return []
        if type(value) is not list:
            raise self._error(name, "an array")
        return value
