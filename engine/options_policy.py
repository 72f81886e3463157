"""Flags for the scheduling policy at the start: one for each policy field, checked as a switch at run time is."""

from __future__ import annotations

import argparse

from engine.options_env import Env
from engine.scheduler.policy import FIELDS, FieldSpec, Policy, PolicyInvalid, changed, table

NO_LIMIT = "none"  # how the command line writes null


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


def policy_of(parser: argparse.ArgumentParser, args: argparse.Namespace, n_batch: int) -> Policy:
    """The policy of flags and environment; ends the start with a sentence for a value that no switch would take either."""
    specs = table(n_batch)
    changes: dict[str, object] = {}
    for name, spec in specs.items():
        given = getattr(args, name)
        if given:
            changes[name] = _value(spec, str(given))
            try:
                spec.parse(name, changes[name])
            except PolicyInvalid:
                parser.error(f"argument {_flag(name)}: {given!r} is not {_wanted(spec)}")
    return changed(Policy(), changes, specs)


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
