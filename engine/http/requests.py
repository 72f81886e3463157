"""What a completion request asks for, read from its body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.http.errors import ApiError, field_error
from engine.http.fields import INT32_MAX, Fields
from engine.scheduler.task import SamplingParams

SEED_ANY = 2**32 - 1
MAX_LABEL = 40

# Fields that change the output in a way this server does not offer, with the values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "grammar": ("",),
    "json_schema": ({},),
    "n_probs": (0,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "mirostat": (0,),
    "dynatemp_range": (0, 0.0),
    "typical_p": (1, 1.0),
    "xtc_probability": (0, 0.0),
    "dry_multiplier": (0, 0.0),
    "repeat_penalty": (1, 1.0),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "tools": ([],),
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


def read_request(
    body: Mapping[str, Any], *, n_slots: int, n_predict: int, cache_prompt: bool, client: str, n_vocab: int
) -> CompletionRequest:
    """Raises ApiError 400 that names the field. `n_predict` and `cache_prompt` are the server's defaults."""
    fields = Fields(body)
    _refuse_unsupported(body)
    _check_lora(fields)
    stream_options = Fields(fields.object("stream_options"))
    asked = fields.integer("n_predict", "max_tokens", "max_completion_tokens", default=-1, low=-1)
    n_cmpl = fields.integer("n_cmpl", "n", default=1, low=1)
    if n_cmpl > n_slots:
        raise ApiError(400, f"n_cmpl cannot be greater than the number of slots, which is {n_slots}.", field="n_cmpl")
    ping = fields.integer("sse_ping_interval", default=30, low=-1, high=86_400)
    stream = fields.boolean("stream", default=False)
    return CompletionRequest(
        stream=stream,
        n_predict=n_predict if asked == -1 else asked,
        sampling=_sampling(fields, n_vocab),
        stops=fields.strings("stop"),
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
        client=clean_label(client or fields.text("client", "user")),
    )


def _sampling(fields: Fields, n_vocab: int) -> SamplingParams:
    seed = fields.integer("seed", default=-1, low=-(2**31), high=SEED_ANY)
    return SamplingParams(
        temperature=fields.number("temperature", default=0.8, low=-1e6, high=1e6),
        top_k=fields.integer("top_k", default=40, low=-INT32_MAX),
        top_p=fields.number("top_p", default=0.95, low=-1e6, high=1e6),
        min_p=fields.number("min_p", default=0.05, low=-1e6, high=1e6),
        seed=None if seed in (-1, SEED_ANY) else seed & 0xFFFFFFFF,
        ignore_eos=fields.boolean("ignore_eos", default=False),
        logit_bias=_logit_bias(fields, n_vocab),
    )


def _logit_bias(fields: Fields, n_vocab: int) -> tuple[tuple[int, float], ...]:
    """`[[id, bias], ...]` or `{"id": bias}`; false as a bias bans the token. Strings as tokens are not offered."""
    _, value = fields.raw("logit_bias")
    if value is None:
        return ()
    wanted = f"pairs of a token id from 0 to {n_vocab - 1} and a number or false"
    if type(value) is dict:
        if not all(type(key) is str and key.isascii() and key.isdigit() and len(key) < 10 for key in value):
            raise field_error("logit_bias", wanted)
        value = [[int(key), bias] for key, bias in value.items()]
    if type(value) is not list:
        raise field_error("logit_bias", wanted)
    pairs: list[tuple[int, float]] = []
    for item in value:
        if type(item) is not list or len(item) != 2 or type(item[0]) is not int or not 0 <= item[0] < n_vocab:
            raise field_error("logit_bias", wanted)
        bias = float("-inf") if item[1] is False else item[1]
        if type(bias) not in (int, float) or (abs(bias) > 1e6 and bias != float("-inf")):
            raise field_error("logit_bias", wanted)
        pairs.append((item[0], float(bias)))
    return tuple(pairs)


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for name in _UNSUPPORTED.keys() & body.keys():
        value = body[name]
        if value is not None and value not in _UNSUPPORTED[name]:
            raise ApiError(400, f'Field "{name}" is not supported by this server: leave it out.', field=name)
    form = body.get("response_format")
    if form is not None and (type(form) is not dict or form.get("type") != "text"):
        raise ApiError(
            400, 'Field "response_format" is not supported by this server but for {"type": "text"}.', field="response_format"
        )


def _check_lora(fields: Fields) -> None:
    """No adapters are loaded, so a list of scales has no effect; its shape is checked all the same."""
    for item in fields.array("lora"):
        if type(item) is not dict:
            raise field_error("lora", 'an array of {"id": ..., "scale": ...}')
        entry = Fields(item)
        entry.integer("id", default=0, low=-1)
        entry.number("scale", default=0.0)


def clean_label(text: str) -> str:
    """At most 40 printable characters of what a client calls itself."""
    return "".join(char for char in text[: 4 * MAX_LABEL] if char.isprintable()).strip()[:MAX_LABEL]
