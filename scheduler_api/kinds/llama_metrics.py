"""A llama-server's /metrics: names over its versions, and what is not exported told apart from zero. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})?\s+(\S+)")

#: Our name -> the names under which versions export it, newest first.
ALIASES: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("llamacpp:prompt_tokens_total",),
    "generated_tokens": ("llamacpp:tokens_predicted_total",),
    "processing": ("llamacpp:requests_processing",),
    "deferred": ("llamacpp:requests_deferred",),
    "kv_used": ("llamacpp:kv_cache_tokens",),
    "decodes": ("llamacpp:n_decode_total",),
}


def parse_samples(text: str) -> dict[str, float | None]:
    """Unlabelled samples by name. A value that is no finite number is None, a line that is no sample is passed over."""
    found: dict[str, float | None] = {}
    for line in text.splitlines():
        if (match := _LINE.match(line)) and not match[2]:
            found[match[1]] = _value(match[3])
    return found


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Metrics:
    """None is not exported, or not a number. `process_start` is the header Process-Start-Time-Unix."""

    prompt_tokens: float | None
    generated_tokens: float | None
    processing: float | None
    deferred: float | None
    kv_used: float | None
    decodes: float | None
    process_start: str

    @property
    def working(self) -> bool | None:
        if self.processing is None:
            return None
        return self.processing > 0 or (self.deferred or 0) > 0

    def restarted_since(self, before: Metrics) -> bool:
        """Another process: its start time moved, or a counter went back."""
        if self.process_start and before.process_start and self.process_start != before.process_start:
            return True
        pairs = ((self.prompt_tokens, before.prompt_tokens), (self.generated_tokens, before.generated_tokens))
        return any(now is not None and then is not None and now < then for now, then in pairs)

    def computed_since(self, before: Metrics) -> bool:
        """Whether batches were computed: tokens are counted only when a request ends."""
        return self.decodes is not None and before.decodes is not None and self.decodes > before.decodes


def parse_metrics(text: str, process_start: str = "") -> Metrics:
    samples = parse_samples(text)
    values = {ours: next((samples[name] for name in names if name in samples), None) for ours, names in ALIASES.items()}
    return Metrics(**values, process_start=process_start)
