"""Sampling defaults from the command line: they hold for what a request leaves out."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.options_env import Env, number, whole
from engine.scheduler.task import SAMPLERS, SamplingParams

_INT32 = 2**31 - 1
_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "a": "adaptive_p",
}
# Names as they are, and as clients also write them.
_NAMES = {
    **{name: name for name in (*SAMPLERS, "adaptive_p")},
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ-p": "typ_p",
    "top-n-sigma": "top_n_sigma",
    "top-k": "top_k",
    "top-p": "top_p",
    "nucleus": "top_p",
    "min-p": "min_p",
    "temp": "temperature",
    "adaptive-p": "adaptive_p",
}
SAMPLER_LETTERS = "".join(_LETTERS)

# field, flags, environment variable, lowest, highest; whole numbers where the bounds are whole
_NUMBERS: tuple[tuple[str, str, str, float, float], ...] = (
    ("temperature", "--temp --temperature", "LLAMA_ARG_TEMPERATURE", -1e6, 1e6),
    ("top_k", "--top-k", "LLAMA_ARG_TOP_K", -_INT32, _INT32),
    ("top_p", "--top-p", "LLAMA_ARG_TOP_P", -1e6, 1e6),
    ("min_p", "--min-p", "LLAMA_ARG_MIN_P", -1e6, 1e6),
    ("top_n_sigma", "--top-nsigma --top-n-sigma", "", -1e6, 1e6),
    ("xtc_probability", "--xtc-probability", "", -1e6, 1e6),
    ("xtc_threshold", "--xtc-threshold", "", -1e6, 1e6),
    ("typical_p", "--typical --typical-p", "", -1e6, 1e6),
    ("repeat_last_n", "--repeat-last-n", "", -1, _INT32),
    ("repeat_penalty", "--repeat-penalty", "LLAMA_ARG_REPEAT_PENALTY", 1e-3, 1e3),
    ("presence_penalty", "--presence-penalty", "LLAMA_ARG_PRESENCE_PENALTY", -1e3, 1e3),
    ("frequency_penalty", "--frequency-penalty", "LLAMA_ARG_FREQUENCY_PENALTY", -1e3, 1e3),
    ("dry_multiplier", "--dry-multiplier", "", -1e3, 1e3),
    ("dry_base", "--dry-base", "", -1e3, 1e3),
    ("dry_allowed_length", "--dry-allowed-length", "", 0, _INT32),
    ("dry_penalty_last_n", "--dry-penalty-last-n", "", -1, _INT32),
    ("dynatemp_range", "--dynatemp-range", "", -1e6, 1e6),
    ("dynatemp_exponent", "--dynatemp-exp", "", -1e3, 1e3),
    ("mirostat", "--mirostat", "", 0, 2),
    ("mirostat_eta", "--mirostat-lr", "", 0.0, 1e3),
    ("mirostat_tau", "--mirostat-ent", "", 0.0, 1e3),
    ("adaptive_target", "--adaptive-target", "", -1e3, 1.0),
    ("adaptive_decay", "--adaptive-decay", "", 0.0, 0.99),
)
_BIAS = re.compile(r"(\d{1,9})([+-]\d+(?:\.\d+)?)")


def parse_letters(letters: str) -> tuple[str, ...]:
    """The samplers of llama-server's short form, such as "edkypmxt"; ValueError for what is unknown or comes twice."""
    return _once([_LETTERS.get(letter) for letter in letters])


def parse_names(names: list[Any]) -> tuple[str, ...]:
    """Samplers by name; ValueError for what is unknown or comes twice."""
    return _once([_NAMES.get(name) if type(name) is str else None for name in names])


def _once(found: list[str | None]) -> tuple[str, ...]:
    names: list[str] = []
    for name in found:
        if name is None or name in names:
            raise ValueError(f"must be made of {', '.join((*SAMPLERS, 'adaptive_p'))}, each at most once")
        names.append(name)
    return tuple(names)


def add_sampling_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    group = parser.add_argument_group("sampling, where a request does not say")
    add = group.add_argument
    defaults = SamplingParams()
    for name, flags, variable, low, high in _NUMBERS:
        default = getattr(defaults, name)
        convert: Any = whole(int(low), int(high)) if type(default) is int else number(low, high)
        flag = flags.split()[0]
        read: Any = env.number if type(default) is int else env.real
        given = read(flag, variable, default, convert) if variable else default
        add(*flags.split(), dest=name, type=convert, default=given, metavar="N", help=f"default {default:g}")
    add("-s", "--seed", type=whole(-1, 2**32 - 1), default=-1, metavar="N", help="-1 (default): another for each task")
    add("--ignore-eos", action="store_true", help="go on after the end of the text")
    add("--samplers", default="", metavar="A;B", help=f"links of the chain in their order: {';'.join(SAMPLERS)}")
    add("--sampler-seq", "--sampling-seq", dest="letters", default=None, metavar="ABC", help="the same in letters")
    add(
        "--dry-sequence-breaker",
        dest="breakers",
        action="append",
        metavar="TEXT",
        help="in place of the default ones; none: none",
    )
    add("-l", "--logit-bias", dest="biases", action="append", default=[], metavar="ID(+/-)BIAS", help="makes a token more likely")
    add("--grammar", default="", metavar="GBNF", help="grammar for every answer")
    add("--grammar-file", default="", metavar="PATH", help="the same from a file")
    add("-j", "--json-schema", default="", metavar="JSON", help="JSON schema for every answer")
    add("-jf", "--json-schema-file", default="", metavar="PATH", help="the same from a file")


def sampling_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> tuple[SamplingParams, dict[str, Any] | None]:
    """The defaults, and a JSON schema that waits for the model to become a grammar."""
    values = {name: getattr(args, name) for name, *_ in _NUMBERS}
    known = {field.name for field in fields(SamplingParams)}
    assert values.keys() <= known
    return (
        SamplingParams(
            **values,
            seed=None if args.seed in (-1, 2**32 - 1) else args.seed,
            ignore_eos=args.ignore_eos,
            samplers=_samplers(parser, args),
            dry_sequence_breakers=_breakers(args.breakers),
            logit_bias=tuple(_bias(parser, raw) for raw in args.biases),
            grammar=args.grammar or _text(parser, "--grammar-file", args.grammar_file),
        ),
        _schema(parser, args.json_schema or _text(parser, "--json-schema-file", args.json_schema_file)),
    )


def _samplers(parser: argparse.ArgumentParser, args: argparse.Namespace) -> tuple[str, ...]:
    flag = "--sampler-seq" if args.letters is not None else "--samplers"
    try:
        if args.letters is not None:
            return parse_letters(args.letters)
        return parse_names(args.samplers.split(";")) if args.samplers else SAMPLERS
    except ValueError as exc:
        parser.error(f"argument {flag}: {exc}")


def _breakers(given: list[str] | None) -> tuple[str, ...]:
    if given is None:
        return SamplingParams().dry_sequence_breakers
    return tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in given if text and text != "none")


def _bias(parser: argparse.ArgumentParser, raw: str) -> tuple[int, float]:
    found = _BIAS.fullmatch(raw)
    if found is None:
        parser.error(f"argument --logit-bias: {raw!r} is no token id with a signed number, such as 15043+1")
    return int(found[1]), float(found[2])


def _schema(parser: argparse.ArgumentParser, raw: str) -> dict[str, Any] | None:
    if not raw:
        return None
    try:
        schema = json.loads(raw)
    except ValueError as exc:
        parser.error(f"argument --json-schema: {exc}")
    if not isinstance(schema, dict):
        parser.error("argument --json-schema: a JSON object is needed")
    return schema


def _text(parser: argparse.ArgumentParser, flag: str, path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        parser.error(f"argument {flag}: {path} cannot be read: {exc}")
