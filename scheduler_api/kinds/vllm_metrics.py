"""A vLLM's /metrics, for each of its engines: names over its versions, and what is not exported told apart from zero. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from scheduler_api.kinds.exposition import Sample, samples_of
from scheduler_api.kinds.fields import count
from scheduler_api.kinds.histogram import Buckets, buckets_of

#: Our name -> the names under which versions export it, newest first. Clients of Prometheus add `_total` to a counter.
VALUES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_use": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prompt": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "generated": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "hits": (
        *("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
        *("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits"),
    ),
    "queries": (
        *("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
        *("vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries"),
    ),
    "hit_rate": ("vllm:gpu_prefix_cache_hit_rate",),
}
#: Histograms likewise. One counts each gap between tokens (itl); one counts a mean for each request (tpot).
HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "tpot": ("vllm:request_time_per_output_token_seconds",),
}
_SLEEP = "vllm:engine_sleep_state"
_CACHE = "vllm:cache_config_info"
_START = "process_start_time_seconds"
_WANTED = frozenset(
    {_SLEEP, _CACHE, _START}
    | {name for names in VALUES.values() for name in names}
    | {f"{name}_bucket" for names in HISTOGRAMS.values() for name in names}
)
#: Whose metrics they are, by the beginning of their names; SGLang changed its separator more than once.
_OTHERS = {"sglang:": "SGLang", "sglang_": "SGLang", "llamacpp:": "llama-server"}


@dataclass(slots=True)
class EngineMetrics:
    """What one engine exports. A name that is absent from a mapping is not exported; a value of None is no number."""

    values: dict[str, float | None] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)
    model: str = ""
    asleep: bool = False
    kv_size: int | None = None


@dataclass(frozen=True, slots=True)
class VllmMetrics:
    """By the label `engine`, in its order; versions without that label have the one engine "0"."""

    engines: dict[str, EngineMetrics]
    started_at: float | None


def parse(text: str) -> VllmMetrics:
    by_engine: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    started_at = None
    for sample in samples_of(text, _WANTED):
        if sample.name == _START:
            started_at = sample.value
        else:
            by_engine[sample.labels.get("engine", "") or "0"][sample.name].append(sample)
    engines = {engine: _engine(by_engine[engine]) for engine in sorted(by_engine, key=_order)}
    return VllmMetrics({name: engine for name, engine in engines.items() if engine.values}, started_at)


def looks_like(text: str) -> str:
    """Whose metrics these are when they are not vLLM's; "" when that is not known."""
    if "\nvllm:" in text or text.startswith("vllm:"):
        return "vLLM"
    begins = (line.removeprefix("# HELP ").removeprefix("# TYPE ") for line in text.splitlines())
    return next((whose for line in begins for begin, whose in _OTHERS.items() if line.startswith(begin)), "")


def _order(engine: str) -> tuple[int, str]:
    return (int(engine), "") if engine.isascii() and engine.isdigit() else (1 << 31, engine)


def _engine(samples: dict[str, list[Sample]]) -> EngineMetrics:
    found = EngineMetrics()
    for ours, names in VALUES.items():
        if (name := next((name for name in names if name in samples), None)) is not None:
            found.values[ours] = _sum(samples[name])
    for ours, names in HISTOGRAMS.items():
        if (name := next((name for name in names if f"{name}_bucket" in samples), None)) is not None:
            found.histograms[ours] = _buckets(samples[f"{name}_bucket"])
    found.model = next((model for each in samples.values() for one in each if (model := one.labels.get("model_name"))), "")[:300]
    found.asleep = any(one.value == 0 for one in samples.get(_SLEEP, ()) if one.labels.get("sleep_state") == "awake")
    found.kv_size = _kv_size(samples.get(_CACHE, ()))
    return found


def _sum(samples: list[Sample]) -> float | None:
    """Over the models of one engine; None when one of them is no number."""
    values = [sample.value for sample in samples]
    return None if None in values else sum(value for value in values if value is not None)


def _buckets(samples: list[Sample]) -> Buckets:
    counts: dict[str, float | None] = {}
    for sample in samples:
        bound = sample.labels.get("le", "")
        before = counts.get(bound, 0.0)
        counts[bound] = None if before is None or sample.value is None else before + sample.value
    return buckets_of(list(counts.items()))


def _kv_size(samples: list[Sample] | tuple[()]) -> int | None:
    """Tokens that the KV cache holds: blocks times their size."""
    for sample in samples:
        blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
        if blocks.isdigit() and size.isdigit():
            return count(int(blocks) * int(size))
    return None
