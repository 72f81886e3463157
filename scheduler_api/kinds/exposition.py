"""The text that servers answer /metrics with, read for the names that are wanted and no others. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """`value` is None when it is no finite number: servers write NaN for a mean of nothing."""

    name: str
    value: float | None
    labels: Mapping[str, str] = field(default_factory=dict)


def value_of(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def samples_of(text: str, wanted: Container[str]) -> list[Sample]:
    """The samples with a wanted name, in order. A line that is no sample is passed over."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#") and (sample := _sample(line, wanted)) is not None:
            found.append(sample)
    return found


def _sample(line: str, wanted: Container[str]) -> Sample | None:
    name, brace, rest = line.partition("{")
    if not brace:
        parts = line.split(None, 2)
        return Sample(parts[0], value_of(parts[1])) if len(parts) >= 2 and parts[0] in wanted else None
    if name not in wanted:
        return None
    labels, brace, value = rest.rpartition("}")
    parts = value.split(None, 1)
    return Sample(name, value_of(parts[0]), _labels(labels)) if brace and parts else None


@lru_cache(maxsize=8192)
def _labels(text: str) -> Mapping[str, str]:
    """Kept, since a server writes the same ones at each look, hundreds of them."""
    return dict(_LABEL.findall(text))
