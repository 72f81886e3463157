"""Flags for the scheduling policy at the start: one for each policy field, checked as a switch at run time is."""

from __future__ import annotations

import argparse

from engine.options_env import Env
from engine.scheduler.policy import FIELDS, FieldSpec, Policy, PolicyInvalid, Speculative, changed, table

NO_LIMIT = "none"  # how the command line writes null
# llama-server's names for what a policy field says: flags, variables. Its larger values count as the largest here.
_ITS_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "speculative_n_max": (
        ("--draft-max", "--draft", "--draft-n", "--spec-draft-n-max", "--spec-ngram-simple-size-m", "--spec-ngram-size-m"),
        ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX"),
    ),
    "speculative_n_min": (
        ("--draft-min", "--draft-n-min", "--spec-draft-n-min"),
        ("LLAMA_ARG_SPEC_DRAFT_N_MIN", "LLAMA_ARG_DRAFT_MIN"),
    ),
    "speculative_ngram_size": (("--spec-ngram-simple-size-n", "--spec-ngram-size-n"), ()),
}
_SPEC_TYPES = {"none": Speculative.OFF, "draft": Speculative.DRAFT, "draft-simple": Speculative.DRAFT}
_NGRAM_TYPES = ("ngram-cache", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod")


def add_policy_flags(parser: argparse.ArgumentParser, env: Env) -> None:
    """`--prefill-order` with `PREFILL_ORDER`, and so on."""
    add = parser.add_argument_group("policy at the start; each can be switched while the server runs").add_argument
    for name, spec in FIELDS.items():
        default = env.text(name.upper(), "")
        if spec.values is not None:
            text = f"{spec.meaning} Default: {spec.default}."
            add(_flag(name), choices=list(spec.values), default=default, help=text)
        else:
            nothing = f", {NO_LIMIT}: no limit" if spec.nullable else ""
            text = f"{spec.meaning} Default: {NO_LIMIT if spec.default is None else spec.default}."
            metavar = "X" if spec.fraction else "N"
            add(_flag(name), default=default, metavar=metavar, help=f"{text} {spec.minimum} to {spec.maximum}{nothing}")
        if name in _ITS_NAMES:
            flags, variables = _ITS_NAMES[name]
            given = next(filter(None, [env.text(variable, "") for variable in variables]), "")
            add(*flags, dest=f"its_{name}", default=given, metavar="N", help=f"llama-server's name for {_flag(name)}")
    text = f"llama-server's name for {_flag('speculative')}: none, draft-simple, ngram-simple, or another of its n-gram types"
    add("--spec-type", default=env.text("LLAMA_ARG_SPEC_TYPE", ""), metavar="TYPE[,TYPE]", help=text)


def policy_of(parser: argparse.ArgumentParser, args: argparse.Namespace, n_batch: int) -> Policy:
    """The policy of flags and environment; ends the start with a sentence for a value that no switch would take either."""
    specs = table(n_batch)
    changes: dict[str, object] = {}
    for name, spec in specs.items():
        given = getattr(args, name) or _its_value(parser, args, name, spec)
        if given:
            changes[name] = _value(spec, str(given))
            try:
                spec.parse(name, changes[name])
            except PolicyInvalid:
                parser.error(f"argument {_flag(name)}: {given!r} is not {_wanted(spec)}")
    return changed(Policy(), changes, specs)


def _its_value(parser: argparse.ArgumentParser, args: argparse.Namespace, name: str, spec: FieldSpec) -> str:
    """What llama-server's flags ask for, in this server's words; nothing when they were not given."""
    if name == "speculative":
        return _its_types(parser, args) if args.spec_type else (Speculative.DRAFT if args.model_draft else "")
    given = str(getattr(args, f"its_{name}", "") or "")
    try:
        return str(min(int(given), int(spec.maximum))) if given else ""
    except ValueError:
        return given


def _its_types(parser: argparse.ArgumentParser, args: argparse.Namespace) -> str:
    """Without a model comes before with one, as in llama-server. Types that this server has not are a wrong flag."""
    wanted = [name.strip() for name in args.spec_type.split(",") if name.strip()]
    known = {**_SPEC_TYPES, **dict.fromkeys(_NGRAM_TYPES, Speculative.NGRAM)}
    for name in wanted:
        if name not in known:
            parser.error(f"argument --spec-type: {name!r} is not one of {', '.join(known)}")
    found = {known[name] for name in wanted}
    return next((kind for kind in (Speculative.NGRAM, Speculative.DRAFT) if kind in found), Speculative.OFF)


def _value(spec: FieldSpec, text: str) -> object:
    """As JSON would carry it; text that is no number stays text, which no number field allows."""
    if spec.values is not None:
        return text
    if spec.nullable and text.lower() == NO_LIMIT:
        return None
    try:
        return float(text) if spec.fraction else int(text)
    except ValueError:
        return text


def _wanted(spec: FieldSpec) -> str:
    if spec.values is not None:
        return f"one of {', '.join(spec.values)}"
    kind, null = "number" if spec.fraction else "whole number", f" or {NO_LIMIT}" if spec.nullable else ""
    return f"a {kind} from {spec.minimum} to {spec.maximum}{null}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
