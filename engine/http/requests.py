"""What a completion request asks for, read from its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.backends.base import Backend
from engine.http.adapters import read_lora
from engine.http.errors import ApiError, field_error
from engine.http.fields import Fields
from engine.http.sampling import read_sampling
from engine.scheduler.task import Lora, SamplingParams

MAX_LABEL = 40
MAX_STOPS = 4096

# Fields that change the output in a way this server does not offer, with the values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "functions": ([],),
    "best_of": (1,),
    "suffix": ("",),
    "echo": (False,),
}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Everything but the prompt. `n_predict` -1: until the context ends; `id_slot` -1: any; `ping_s` 0: no keep-alive."""

    stream: bool
    n_predict: int
    sampling: SamplingParams
    stops: tuple[str, ...]
    n_cmpl: int
    id_slot: int
    cache_prompt: bool
    return_progress: bool
    return_tokens: bool
    timings_per_token: bool
    include_usage: bool
    response_fields: tuple[str, ...]
    ping_s: float
    max_generation_s: float  # 0: no limit
    client: str
    queue_timeout_ms: int = 0  # 0: a prompt may wait for as long as it takes
    lora: Lora = ()
    n_keep: int = 0  # -1: the whole prompt
    n_discard: int = 0  # 0: half of what is not kept
    draft_max: int = -1  # drafted tokens in a batch; -1: as the policy says
    draft_min: int = -1


def read_request(
    body: Mapping[str, Any],
    *,
    n_slots: int,
    n_predict: int,
    cache_prompt: bool,
    sampling: SamplingParams,
    ping_s: int,
    queue_timeout_ms: int,
    lora_scales: Sequence[float],
    n_keep: int,
    client: str,
    backend: Backend,
) -> CompletionRequest:
    """Raises ApiError 400 that names the field. From `n_predict` to `n_keep`: the server's defaults."""
    fields = Fields(body)
    _refuse_unsupported(body)
    stream_options = Fields(fields.object("stream_options"), "stream_options")
    asked = fields.integer("n_predict", "max_tokens", "max_completion_tokens", default=-1, low=-1)
    n_cmpl = fields.integer("n_cmpl", "n", default=1, low=1)
    if n_cmpl > n_slots:
        raise ApiError(400, f"n_cmpl cannot be greater than the number of slots, which is {n_slots}.", field="n_cmpl")
    ping = fields.integer("sse_ping_interval", default=ping_s, low=-1, high=86_400)
    stream = fields.boolean("stream", default=False)
    return CompletionRequest(
        stream=stream,
        n_predict=n_predict if asked == -1 else asked,
        sampling=read_sampling(fields, sampling, backend),
        stops=_stops(fields),
        n_cmpl=n_cmpl,
        id_slot=fields.integer("id_slot", default=-1, low=-1),
        cache_prompt=fields.boolean("cache_prompt", default=cache_prompt),
        return_progress=stream and fields.boolean("return_progress", default=False),
        return_tokens=fields.boolean("return_tokens", default=False),
        timings_per_token=fields.boolean("timings_per_token", default=False),
        include_usage=stream_options.boolean("include_usage", default=False),
        response_fields=fields.strings("response_fields"),
        ping_s=float(max(0, ping)),
        max_generation_s=max(0, fields.integer("t_max_predict_ms", default=-1, low=-1)) / 1e3,
        queue_timeout_ms=max(0, fields.integer("queue_timeout_ms", default=queue_timeout_ms, low=-1)),
        lora=read_lora(fields, lora_scales),
        n_keep=fields.integer("n_keep", default=n_keep, low=-1),
        n_discard=fields.integer("n_discard", default=0, low=0),
        draft_max=_draft_max(fields),
        draft_min=fields.integer("speculative.n_min", default=-1, low=0),
        client=clean_label(client or fields.text("client", "user")),
    )


def _draft_max(fields: Fields) -> int:
    """llama-server's fields. A request can do without drafts; where they come from is the policy's to say."""
    if fields.text("speculative.types", "speculative.type") == "none":
        return 0
    return fields.integer("speculative.n_max", default=-1, low=0)


def _stops(fields: Fields) -> tuple[str, ...]:
    """Every token of a stream is held against each beginning of each of them, between two batches: so they may not be long."""
    stops = fields.strings("stop")
    if sum(map(len, stops)) > MAX_STOPS:
        raise field_error("stop", f"of at most {MAX_STOPS} characters in all")
    return stops


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for name, harmless in _UNSUPPORTED.items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise ApiError(400, f'Field "{name}" is not supported by this server: leave it out.', field=name)


def clean_label(text: str) -> str:
    """At most 40 printable characters of what a client calls itself."""
    return "".join(char for char in text[: 4 * MAX_LABEL] if char.isprintable()).strip()[:MAX_LABEL]
