"""Whether a draft without rotary sections gets the temporal-only layout, because its target uses M-RoPE. Pure.

The rule, in this order (docs/drafts.md has it in words):

1. no draft, no target, another architecture than dflash, or a DeepSeek V4 style draft: not applicable
2. the target's rope type is not M-RoPE, or its file has no sections: not applicable
3. the draft's file has sections: they hold
4. layer 0's rotary dimension is 0, odd, or larger than its head: invalid
5. else sections [n_rot / 2, 0, 0, 0]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

from engine.drafts.facts import ModelFacts, Rope

DRAFT_ARCHITECTURE = "dflash"
SECTIONS_KEY = f"{DRAFT_ARCHITECTURE}.rope.dimension_sections"

Mode = Literal["auto", "off", "temporal"]
MODES: tuple[Mode, ...] = get_args(Mode)

# As llama.cpp maps architectures to rope types. The second set does so only where the first two sections are above 0.
_MROPE = frozenset({"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "qwen3tts"})
_MROPE_WITH_SECTIONS = frozenset({"glm4", "glm4moe", "hunyuan_vl", "bailingmoe3"})

Sections = tuple[int, int, int, int]


class Outcome(StrEnum):
    NOT_APPLICABLE = "not_applicable"  # the draft is loaded as it is
    EXPLICIT = "explicit"  # the draft's own sections hold
    INFERRED = "inferred"  # sections are added in memory
    INVALID = "invalid"  # the draft must not be loaded


class Reason(StrEnum):
    NO_DRAFT = "no_draft"
    NO_TARGET = "no_target"
    OTHER_ARCHITECTURE = "other_architecture"
    DEEPSEEK_V4 = "deepseek_v4"
    TARGET_NOT_MROPE = "target_not_mrope"
    TARGET_WITHOUT_SECTIONS = "target_without_sections"
    SWITCHED_OFF = "switched_off"
    OWN_SECTIONS = "own_sections"
    NO_LAYERS = "no_layers"
    NO_PATTERN = "no_pattern"
    BAD_DIMENSION = "bad_dimension"
    BAD_SECTIONS = "bad_sections"
    LEGACY = "legacy"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Decision:
    """`sections` are those that the draft runs with, None where it runs without; `text` says in a sentence why."""

    outcome: Outcome
    reason: Reason
    text: str
    sections: Sections | None = None
    warnings: tuple[str, ...] = ()

    @property
    def adapts(self) -> bool:
        """The draft must be loaded through an overlay."""
        return self.outcome is Outcome.INFERRED


def uses_mrope(facts: ModelFacts) -> bool:
    """Whether llama.cpp gives this model four positions for each embedding."""
    if facts.architecture in _MROPE_WITH_SECTIONS:
        return all(facts.sections[:2])
    return facts.architecture in _MROPE or (facts.architecture == DRAFT_ARCHITECTURE and facts.has_sections)


def judge(target: ModelFacts, draft: ModelFacts, mode: Mode = "auto") -> Decision:
    """`decide`, and beyond the rule: a draft at which llama.cpp would end the whole process is invalid beside any target."""
    decision = decide(target, draft, mode)
    if decision.outcome is Outcome.INVALID:
        return decision
    rope, fault = draft.first, None
    if draft.n_layers == 0:
        reason, fault = Reason.NO_LAYERS, f"{draft.architecture}.block_count is 0 or missing, and llama.cpp needs a layer"
    elif draft.architecture == DRAFT_ARCHITECTURE and rope.n_rot > rope.head:
        reason, fault = Reason.BAD_DIMENSION, _too_large(rope)
    elif draft.architecture == DRAFT_ARCHITECTURE and draft.has_sections and not any(draft.sections[:3]):
        reason, fault = (
            Reason.BAD_SECTIONS,
            f"{SECTIONS_KEY} is {list(draft.sections)}, and one of the first three must be above 0",
        )
    return decision if fault is None else Decision(Outcome.INVALID, reason, f"The draft cannot be loaded: {fault}.")


def decide(target: ModelFacts | None, draft: ModelFacts | None, mode: Mode = "auto") -> Decision:
    """What becomes of `draft` beside `target`. Never raises: what is wrong with the draft is the outcome `INVALID`."""
    decision = _forced(draft) if mode == "temporal" else _by_rule(target, draft, mode)
    if target is None or draft is None or draft.architecture != DRAFT_ARCHITECTURE or decision.outcome is Outcome.INVALID:
        return decision
    warnings = (*decision.warnings, *_disagreements(target, draft))
    return Decision(decision.outcome, decision.reason, decision.text, decision.sections, warnings)


def _by_rule(target: ModelFacts | None, draft: ModelFacts | None, mode: Mode) -> Decision:
    if draft is None:
        return _not_applicable(Reason.NO_DRAFT, "There is no draft model.")
    if target is None:
        return _not_applicable(Reason.NO_TARGET, "There is no target model, so nothing is known about its positions.")
    if unable := _unable(draft):
        return unable
    if not uses_mrope(target):
        with_sections = " with these sections" if target.architecture in _MROPE_WITH_SECTIONS else ""
        text = f"The target's architecture {target.architecture} does not use M-RoPE{with_sections}, so positions have no gaps."
        return _not_applicable(Reason.TARGET_NOT_MROPE, text)
    if not target.has_sections:
        key = f"{target.architecture}.rope.dimension_sections"
        text = f"The target's architecture {target.architecture} uses M-RoPE, but its file has no section above 0 in {key}."
        return _not_applicable(Reason.TARGET_WITHOUT_SECTIONS, text)
    if draft.has_sections:
        text = f"The draft's file has sections of its own, {SECTIONS_KEY} = {list(draft.sections)}, and they hold."
        return Decision(Outcome.EXPLICIT, Reason.OWN_SECTIONS, text, _four(draft.sections))
    if mode == "off":
        text = "The draft has no sections and the target uses M-RoPE: they would be inferred, but --draft-rope is off."
        warning = "Without sections the draft refuses every position after a gap, and so the text after an image."
        return Decision(Outcome.NOT_APPLICABLE, Reason.SWITCHED_OFF, text, warnings=(warning,))
    text = (
        f"The draft has no sections and the target ({target.architecture}) uses M-RoPE, whose positions jump over an image. "
        "All of the draft's pairs are put into the temporal section, which leaves its angles as they are and lets positions jump."
    )
    return _temporal(draft, Reason.LEGACY, text)


def _forced(draft: ModelFacts | None) -> Decision:
    if draft is None:
        return _not_applicable(Reason.NO_DRAFT, "There is no draft model.")
    if unable := _unable(draft):
        text = f"--draft-rope temporal cannot be followed: {unable.text[0].lower()}{unable.text[1:]}"
        return Decision(Outcome.INVALID, unable.reason, text)
    decision = _temporal(draft, Reason.FORCED, "The temporal-only layout is asked for with --draft-rope temporal.")
    own = _four(draft.sections)
    if not draft.has_sections or decision.sections is None:
        return decision
    if own == decision.sections:
        return Decision(Outcome.EXPLICIT, Reason.OWN_SECTIONS, "The draft's file has the temporal-only layout already.", own)
    warning = f"The draft's file has other sections, {SECTIONS_KEY} = {list(own)}; they are replaced."
    return Decision(decision.outcome, decision.reason, decision.text, decision.sections, (warning,))


def _unable(draft: ModelFacts) -> Decision | None:
    """A draft that has no use for sections."""
    if draft.architecture != DRAFT_ARCHITECTURE:
        text = f"The draft's architecture is {draft.architecture}; only {DRAFT_ARCHITECTURE} drafts need it."
        return _not_applicable(Reason.OTHER_ARCHITECTURE, text)
    if draft.hyper_connections > 0:
        key = f"{DRAFT_ARCHITECTURE}.hyper_connection.count"
        text = f"The draft is of the DeepSeek V4 kind ({key} = {draft.hyper_connections}), whose rotation has no sections."
        return _not_applicable(Reason.DEEPSEEK_V4, text)
    return None


def _temporal(draft: ModelFacts, reason: Reason, text: str) -> Decision:
    if draft.n_layers == 0:
        fault = f"{DRAFT_ARCHITECTURE}.block_count is 0 or missing, so there is no layer 0 whose rotary dimension could be taken"
        return _invalid(Reason.NO_LAYERS, fault)
    if draft.first_slides is None:
        window = f"{DRAFT_ARCHITECTURE}.attention.sliding_window"
        fault = f"there is {window}, but no {window}_pattern that says whether layer 0 slides"
        return _invalid(Reason.NO_PATTERN, fault)
    rope = draft.first
    if rope.n_rot == 0:
        return _invalid(Reason.BAD_DIMENSION, f"{rope.n_rot_key} is 0, so there is nothing to rotate")
    if rope.n_rot % 2:
        return _invalid(Reason.BAD_DIMENSION, f"{rope.n_rot_key} is {rope.n_rot}, an odd number, and rotation takes pairs")
    if rope.n_rot > rope.head:
        return _invalid(Reason.BAD_DIMENSION, _too_large(rope))
    return Decision(Outcome.INFERRED, reason, text, (rope.n_rot // 2, 0, 0, 0))


def _too_large(rope: Rope) -> str:
    return f"{rope.n_rot_key} is {rope.n_rot}, more than the head of {rope.head} ({rope.head_key})"


def _disagreements(target: ModelFacts, draft: ModelFacts) -> Iterator[str]:
    """The rule looks at neither; a draft that was trained for this target has both like it."""
    ours, theirs = draft.first, target.first
    if ours.n_rot != theirs.n_rot:
        yield (
            f"Draft and target rotate different sizes: {ours.n_rot_key} = {ours.n_rot}, {theirs.n_rot_key} = {theirs.n_rot}. "
            "The draft may have been made for another target."
        )
    if draft.freq_base != target.freq_base:
        yield (
            f"Draft and target have different bases: {draft.architecture}.rope.freq_base = {draft.freq_base:g}, "
            f"{target.architecture}.rope.freq_base = {target.freq_base:g}. The draft may have been made for another target."
        )


def _four(sections: tuple[int, ...]) -> Sections:
    first, second, third, fourth = sections
    return first, second, third, fourth


def _not_applicable(reason: Reason, text: str) -> Decision:
    return Decision(Outcome.NOT_APPLICABLE, reason, text)


def _invalid(reason: Reason, fault: str) -> Decision:
    return Decision(Outcome.INVALID, reason, f"The draft cannot be adapted to this target: {fault}.")
