"""Reading values out of another server's JSON: the type that is expected, or a default. Pure."""

from __future__ import annotations

import math
from typing import Any

type Json = dict[str, Any]

LONGEST_TEXT = 300


def mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number; a bool is none."""
    if type(value) is float:  # nearly all of them, thousands in a second
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def count(value: Any) -> int | None:
    """A whole number from 0 on. Servers write -1 where they mean none, and Python would take that as the last index."""
    found = value if type(value) is int else whole(value)
    return found if found is not None and found >= 0 else None


def text(value: Any, longest: int = LONGEST_TEXT) -> str:
    return value[:longest] if isinstance(value, str) else ""
