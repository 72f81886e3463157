"""The sampling fields of a request: llama-server's names, defaults and shapes, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from engine.backends.base import Backend
from engine.http.errors import ApiError, field_error
from engine.http.fields import INT32_MAX, Fields
from engine.options_sampling import SAMPLER_LETTERS, parse_letters, parse_names
from engine.scheduler.task import SAMPLERS, SamplingParams

SEED_ANY = 2**32 - 1
MAX_PROBS = 1000
MAX_BREAKERS = 64

# name: lowest, highest
_NUMBERS: dict[str, tuple[float, float]] = {
    "temperature": (-1e6, 1e6),
    "top_p": (-1e6, 1e6),
    "min_p": (-1e6, 1e6),
    "top_n_sigma": (-1e6, 1e6),
    "typical_p": (-1e6, 1e6),
    "xtc_probability": (-1e6, 1e6),
    "xtc_threshold": (-1e6, 1e6),
    "dynatemp_range": (-1e6, 1e6),
    "dynatemp_exponent": (-1e3, 1e3),
    "repeat_penalty": (1e-3, 1e3),
    "presence_penalty": (-1e3, 1e3),
    "frequency_penalty": (-1e3, 1e3),
    "dry_multiplier": (-1e3, 1e3),
    "dry_base": (-1e3, 1e3),
    "mirostat_tau": (0.0, 1e3),
    "mirostat_eta": (0.0, 1e3),
    "adaptive_target": (-1e3, 1.0),
    "adaptive_decay": (0.0, 0.99),
}
_INTEGERS: dict[str, tuple[int, int]] = {
    "top_k": (-INT32_MAX, INT32_MAX),
    "repeat_last_n": (-1, INT32_MAX),
    "dry_allowed_length": (0, INT32_MAX),
    "dry_penalty_last_n": (-1, INT32_MAX),
    "mirostat": (0, 2),
    "min_keep": (0, INT32_MAX),
}


def read_sampling(fields: Fields, defaults: SamplingParams, backend: Backend) -> SamplingParams:
    """Raises ApiError 400 that names the field. What a request leaves out is as in `defaults`."""
    values: dict[str, Any] = {
        name: fields.number(name, default=getattr(defaults, name), low=low, high=high) for name, (low, high) in _NUMBERS.items()
    }
    values |= {
        name: fields.integer(name, default=getattr(defaults, name), low=low, high=high) for name, (low, high) in _INTEGERS.items()
    }
    bias = _logit_bias(fields, backend)
    sampling = SamplingParams(
        **values,
        seed=_seed(fields, defaults),
        ignore_eos=fields.boolean("ignore_eos", default=defaults.ignore_eos),
        logit_bias=defaults.logit_bias if bias is None else bias,
        dry_sequence_breakers=_breakers(fields, defaults),
        samplers=_samplers(fields, defaults),
        grammar=_grammar(fields, defaults, backend),
        n_probs=read_n_probs(fields, defaults.n_probs),
    )
    if fields.boolean("post_sampling_probs", default=False) and sampling.n_probs:
        return _after_sampling(sampling)
    return sampling


def _after_sampling(sampling: SamplingParams) -> SamplingParams:
    """With probabilities after sampling, which are computed beside llama.cpp's chain and so not for every link of one."""
    links = {
        "grammar": sampling.grammar,
        "mirostat": sampling.mirostat,
        "dry_multiplier": sampling.dry_multiplier and "dry" in sampling.samplers,
        "xtc_probability": sampling.xtc_probability > 0 and "xtc" in sampling.samplers,
        "adaptive_target": sampling.adaptive_target >= 0 and "adaptive_p" in sampling.samplers,
    }
    for name, used in links.items():
        if used:
            message = f'Field "post_sampling_probs" must be false with "{name}": what that leaves is not known to this server.'
            raise ApiError(400, message, field="post_sampling_probs")
    return replace(sampling, post_sampling_probs=True)


def sampling_json(sampling: SamplingParams, eog: Iterable[int] = ()) -> dict[str, Any]:
    """As llama-server shows it: a seed of its own is the largest number, a ban is null. `eog`: what ignore_eos bans."""
    shown = asdict(sampling)
    shown["seed"] = SEED_ANY if sampling.seed is None else sampling.seed
    bans = [(token, -math.inf) for token in sorted(eog)] if sampling.ignore_eos else []
    biases = (*sampling.logit_bias, *bans)
    shown["logit_bias"] = [{"token": token, "bias": None if bias == -math.inf else bias} for token, bias in biases]
    return shown


def _seed(fields: Fields, defaults: SamplingParams) -> int | None:
    name, value = fields.raw("seed")
    if value is None:
        return defaults.seed
    seed = fields.integer(name, default=-1, low=-(2**31), high=SEED_ANY)
    return None if seed in (-1, SEED_ANY) else seed & 0xFFFFFFFF


def _breakers(fields: Fields, defaults: SamplingParams) -> tuple[str, ...]:
    _, value = fields.raw("dry_sequence_breakers")
    if value is None:
        return defaults.dry_sequence_breakers
    breakers = fields.strings("dry_sequence_breakers", most=MAX_BREAKERS)
    if type(value) is str or not breakers or not all(1 <= len(text) <= 40 for text in breakers):
        raise field_error("dry_sequence_breakers", f"an array of 1 to {MAX_BREAKERS} strings of 1 to 40 characters")
    return breakers


def _samplers(fields: Fields, defaults: SamplingParams) -> tuple[str, ...]:
    """An array of names, or a string of letters such as "edkypmxt"."""
    _, value = fields.raw("samplers")
    if value is None:
        return defaults.samplers
    try:
        if type(value) is str:
            return parse_letters(value)
        if type(value) is list:
            return parse_names(value)
    except ValueError:
        pass
    wanted = f"an array of {', '.join((*SAMPLERS, 'adaptive_p'))}, each at most once, or a string of {SAMPLER_LETTERS}"
    raise field_error("samplers", wanted)


def _logit_bias(fields: Fields, backend: Backend) -> tuple[tuple[int, float], ...] | None:
    """`[[token, bias], ...]` or `{token: bias}`, where a token is an id or a text (a bias for each of its tokens), and a bias is
    a number, or false, which bans. None when absent."""
    _, value = fields.raw("logit_bias")
    if value is None:
        return None
    if type(value) is dict:
        value = [[int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key, bias] for key, bias in value.items()]
    if type(value) is not list:
        raise _bias_error(backend)
    pairs: list[tuple[int, float]] = []
    for item in value:
        if type(item) is not list or len(item) != 2:
            raise _bias_error(backend)
        pairs += _pairs(item[0], item[1], backend)
    return tuple(pairs)


def _pairs(token: Any, bias: Any, backend: Backend) -> list[tuple[int, float]]:
    number = -math.inf if bias is False else bias
    if type(number) not in (int, float) or (abs(number) > 1e6 and number != -math.inf):
        raise _bias_error(backend)
    if type(token) is str:
        return [(each, float(number)) for each in backend.tokenize(token, add_special=False)]
    if type(token) is not int or not 0 <= token < backend.info.n_vocab:
        raise _bias_error(backend)
    return [(token, float(number))]


def _bias_error(backend: Backend) -> ApiError:
    highest = backend.info.n_vocab - 1
    return field_error("logit_bias", f"pairs of a token (an id from 0 to {highest}, or a text) and a number or false")


def read_n_probs(fields: Fields, default: int) -> int:
    """`n_probs`; or OpenAI's `logprobs`, a number, or true with `top_logprobs` beside it."""
    n_probs = fields.integer("n_probs", default=default, low=0, high=MAX_PROBS)
    name, asked = fields.raw("logprobs")
    top = fields.integer("top_logprobs", default=0, low=0, high=MAX_PROBS)
    if type(asked) is bool:
        return max(n_probs, top or 1) if asked else _without_logprobs(top, n_probs)
    if asked is None:
        return _without_logprobs(top, n_probs)
    return fields.integer(name, default=0, low=0, high=MAX_PROBS) or n_probs


def _without_logprobs(top: int, n_probs: int) -> int:
    if top:
        raise ApiError(400, "top_logprobs requires logprobs to be set to true", field="top_logprobs")
    return n_probs


def _grammar(fields: Fields, defaults: SamplingParams, backend: Backend) -> str:
    """From `grammar`, `json_schema` or `response_format`, of which a request may have one."""
    grammar = fields.text("grammar")
    name, schema = "json_schema", fields.raw("json_schema")[1]
    if schema is not None and type(schema) is not dict:
        raise field_error("json_schema", "an object")
    wanted = _response_schema(fields)
    if wanted is not None:
        if schema is not None:
            raise ApiError(400, 'Fields "response_format" and "json_schema" exclude each other.', field="response_format")
        name, schema = "response_format", wanted
    if schema is not None:
        if grammar:
            raise ApiError(400, f'Fields "grammar" and "{name}" exclude each other.', field="grammar")
        return _usable(name, _from_schema(name, schema, backend), backend)
    return _usable("grammar", grammar, backend) if grammar else defaults.grammar


def _response_schema(fields: Fields) -> dict[str, Any] | None:
    form = Fields(fields.object("response_format"), "response_format")
    kind = form.text("type", default="text")
    if kind == "text":
        return None
    if kind == "json_object":
        return form.object("schema") or {"type": "object"}
    if kind == "json_schema":
        inner: Mapping[str, Any] = form.object("json_schema")
        return Fields(inner, "response_format.json_schema").object("schema") or form.object("schema") or {"type": "object"}
    raise field_error("response_format", '{"type": ...} with one of "text", "json_object" or "json_schema"')


def _from_schema(name: str, schema: dict[str, Any], backend: Backend) -> str:
    try:
        return backend.schema_grammar(schema or {"type": "object"})
    except ValueError as error:
        raise ApiError(400, f'Field "{name}" holds a schema that cannot be used: {error}.', field=name) from None


def _usable(name: str, grammar: str, backend: Backend) -> str:
    try:
        backend.check_grammar(grammar)
    except ValueError as error:
        raise ApiError(400, f'Field "{name}" holds a grammar that cannot be used: {error}.', field=name) from None
    return grammar
