"""An examination in words and as JSON: for the command line, and for the console's page. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.drafts.decide import DRAFT_ARCHITECTURE, Decision, Mode, Outcome, Reason, uses_mrope
from engine.drafts.errors import DraftError
from engine.drafts.facts import ModelFacts
from engine.drafts.preparing import Examination, Side

_HEADLINES = {
    Outcome.NOT_APPLICABLE: "The draft is used as it is",
    Outcome.EXPLICIT: "The draft's own sections hold",
    Outcome.INFERRED: "Temporal-only sections are added in memory",
    Outcome.INVALID: "The draft is refused",
}
_NEXT_STEPS = {
    Outcome.NOT_APPLICABLE: "Give the file with --model-draft: it is loaded unchanged.",
    Outcome.EXPLICIT: "Give the file with --model-draft: it is loaded unchanged.",
    Outcome.INFERRED: (
        "Give the file with --model-draft: the engine loads a copy in memory whose header has the sections, "
        "and the file stays as it is. --draft-rope off loads it unchanged."
    ),
    Outcome.INVALID: "The engine does not start with this draft. Convert it anew; until then --draft-optional serves without it.",
}
_ALSO = {Reason.SWITCHED_OFF: "--draft-rope off", Reason.FORCED: "--draft-rope temporal: its copy in memory gets the sections"}
_FORCED_NEXT = "Leave out --draft-rope temporal, and the draft is loaded as it is."


def headline(decision: Decision) -> str:
    return _HEADLINES[decision.outcome]


def next_step(decision: Decision) -> str:
    if decision.outcome is Outcome.INVALID and decision.reason in (Reason.OTHER_ARCHITECTURE, Reason.DEEPSEEK_V4):
        return _FORCED_NEXT
    if decision.reason in _ALSO:
        return f"Give the file with --model-draft and {_ALSO[decision.reason]}."
    return _NEXT_STEPS[decision.outcome]


def report(examination: Examination) -> dict[str, Any]:
    """As `GET /models/check` answers; docs/drafts.md describes the fields."""
    decision = examination.decision
    return {
        "mode": examination.mode,
        "outcome": decision.outcome.value,
        "reason": decision.reason.value,
        "headline": headline(decision),
        "text": decision.text,
        "next_step": next_step(decision),
        "sections": list(decision.sections) if decision.sections is not None else None,
        "warnings": list(decision.warnings),
        "target": _side_json(examination.target),
        "draft": _side_json(examination.draft),
    }


def unreadable(error: DraftError, mode: Mode) -> dict[str, Any]:
    """In the same form, where a header could not be read."""
    return {
        "mode": mode,
        "outcome": "unreadable",
        "reason": "unreadable",
        "headline": "A file cannot be read",
        "text": str(error),
        "next_step": "Convert or fetch the file again, or choose another.",
        "sections": None,
        "warnings": [],
        "target": None,
        "draft": None,
    }


def lines(examination: Examination) -> Iterator[str]:
    """For a terminal."""
    decision = examination.decision
    for role, side in (("Target", examination.target), ("Draft", examination.draft)):
        yield f"{role}: {side.header.path}"
        yield from (f"  {label}: {value}" for label, value in _found(side.facts))
    yield f"{headline(decision)}."
    yield f"  Why: {decision.text}"
    if decision.outcome is Outcome.INFERRED and decision.sections is not None:
        yield f"  Sections: {list(decision.sections)}"
    yield from (f"  Warning: {warning}" for warning in decision.warnings)
    yield f"  Next: {next_step(decision)}"


def _side_json(side: Side) -> dict[str, Any]:
    facts = side.facts
    return {
        "path": str(side.header.path),
        "n_files": side.header.n_shards,
        "name": facts.name,
        "architecture": facts.architecture,
        "sections": list(facts.sections) if facts.has_sections else None,
        "n_rot": facts.first.n_rot,
        "found": [{"label": label, "value": value} for label, value in _found(facts)],
    }


def _found(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    """What matters of a header, as pairs of a label and a value with its key."""
    arch, rope = facts.architecture, facts.first
    yield "Architecture", arch
    yield "Layers", str(facts.n_layers)
    yield "Rope type", _rope_type(facts)
    key = f"{arch}.rope.dimension_sections"
    yield "Rotary sections", f"{list(facts.sections)} ({key})" if facts.has_sections else f"none ({key})"
    window = " (layer 0 slides)" if facts.first_slides else ""
    yield "Rotary dimension", f"{rope.n_rot} of a head of {rope.head}{window} ({rope.n_rot_key})"
    key = f"{arch}.rope.freq_base" if facts.freq_base_given else "llama.cpp's default"
    yield "Rotary base", f"{facts.freq_base:g} ({key})"
    if facts.hyper_connections:
        yield "Hyper-connections", f"{facts.hyper_connections} ({arch}.hyper_connection.count)"


def _rope_type(facts: ModelFacts) -> str:
    if uses_mrope(facts):
        return "M-RoPE: four positions for each embedding, which may jump"
    if facts.architecture == DRAFT_ARCHITECTURE:
        return "one position for each token, which must follow the last"
    return "no M-RoPE"
