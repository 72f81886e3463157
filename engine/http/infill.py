"""POST /infill: the prompt for a text with a gap, put together from the model's own marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.backends.base import Backend, FimTokens
from engine.http.errors import ApiError, field_error
from engine.http.fields import Fields
from engine.http.prompts import check_tokens

_SNIPPET = "\n\n--- snippet ---\n\n"  # between files, for models without a mark for it
_CHUNKS = 'an array of {"filename": string, "text": string}'


@dataclass(frozen=True, slots=True)
class InfillSizes:
    """What bounds an infill prompt: the parts around the gap fit a batch, extra files what the context leaves."""

    n_batch: int
    n_ctx: int
    n_predict: int
    suffix_first: bool


def infill_prompt(body: Mapping[str, Any], backend: Backend, sizes: InfillSizes) -> list[int]:
    """As llama-server puts it: extra files, BOS, prefix with the prompt at its end, suffix, and the mark of the middle.

    Of the prefix the end is kept, of the suffix the beginning, about three to one; of the extra files the end.
    """
    fim = backend.info.fim
    _check_offered(fim)
    fields = Fields(body)
    typed = backend.tokenize(fields.text("prompt"), add_special=False)
    before, after = (_part(body, name, backend) for name in ("input_prefix", "input_suffix"))
    quarter = sizes.n_batch // 4
    before = before[max(0, len(before) - 3 * quarter) :]
    after = after[: max(0, quarter - 2 - len(typed))]
    extra = _extra(fields, backend)
    n_extra = min(len(extra), max(0, sizes.n_ctx - sizes.n_batch - 2 * sizes.n_predict))
    prefix, suffix = [fim.prefix, *before, *typed], [fim.suffix, *after]
    start = [backend.info.bos] if backend.info.add_bos else []
    gap = [*suffix, *prefix] if sizes.suffix_first else [*prefix, *suffix]
    return [*extra[len(extra) - n_extra :], *start, *gap, fim.middle]


def _check_offered(fim: FimTokens) -> None:
    missing = [name for name in ("prefix", "suffix", "middle") if getattr(fim, name) < 0]
    if missing:
        raise ApiError(501, "Infill is not supported by this model: " + " ".join(f"{name} token is missing." for name in missing))


def _part(body: Mapping[str, Any], name: str, backend: Backend) -> list[int]:
    if body.get(name) is None:
        raise ApiError(400, f'"{name}" is required', field=name)
    value = body[name]
    items = [value] if type(value) is str else value
    if type(items) is not list:
        raise field_error(name, "a string or an array of strings and token ids")
    parts = [_plain(item, backend) if type(item) is str else check_tokens([item], backend, name) for item in items]
    return [token for part in parts for token in part]


def _extra(fields: Fields, backend: Backend) -> list[int]:
    """Other files, each behind the model's mark and its name; then the mark of the file with the gap."""
    fim = backend.info.fim
    tokens = [] if fim.repo < 0 else [fim.repo, *_plain("myproject\n", backend)]
    for chunk in fields.array("input_extra"):
        text = chunk.get("text") if type(chunk) is dict else None
        name = chunk.get("filename", "tmp") if type(chunk) is dict else None
        if type(text) is not str or type(name) is not str:
            raise field_error("input_extra", _CHUNKS)
        tokens += _plain(_SNIPPET, backend) if fim.separator < 0 else [fim.separator, *_plain(name + "\n", backend)]
        tokens += _plain(text, backend)
    return tokens if fim.separator < 0 else [*tokens, fim.separator, *_plain("filename\n", backend)]


def _plain(text: str, backend: Backend) -> list[int]:
    return backend.tokenize(text, add_special=False, parse_special=False)
