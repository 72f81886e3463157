"""JSON that every reader accepts: what a server writes as NaN or Infinity is read as None, and never written."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

_LONGEST_INT = 16  # digits; beyond 2**53 a browser rounds anyway, beyond 2**64 the writer refuses


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | float | None:
    return int(text) if len(text) < _LONGEST_INT else _finite(text)


def _not_a_number(name: str) -> None:
    return None


def loads(data: bytes | str) -> Any:
    """Raises ValueError for what is no JSON, also for nesting that is too deep to be meant."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _leniently(data)


def _leniently(data: bytes | str) -> Any:
    """What strict JSON is not but servers write: NaN, Infinity, numbers that are too large. Several times slower."""
    try:
        return json.loads(data, parse_constant=_not_a_number, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any) -> str:
    """Compact; NaN and Infinity become null. Raises TypeError for what JSON cannot say."""
    return orjson.dumps(value).decode()
