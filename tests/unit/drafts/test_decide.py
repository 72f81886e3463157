"""The rule, row by row: which drafts get the temporal-only layout, which are left alone, which are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.drafts import Decision, Mode, ModelFacts, Outcome, Reason, Rope, decide
from engine.drafts.decide import judge, uses_mrope


def rope(n_rot: int = 64, head: int = 64, architecture: str = "dflash", kind: str = "") -> Rope:
    return Rope(n_rot, head, f"{architecture}.rope.dimension_count{kind}", f"{architecture}.attention.key_length{kind}")


def make_draft(n_rot: int = 64, head: int = 64, **facts: Any) -> ModelFacts:
    plain = ModelFacts("dflash", 1, (0, 0, 0, 0), full=rope(n_rot, head), sliding=rope(n_rot, head))
    return replace(plain, **facts)


def make_target(architecture: str = "qwen35", sections: tuple[int, ...] = (11, 11, 10, 0)) -> ModelFacts:
    both = rope(architecture=architecture)
    return ModelFacts(architecture, 1, sections, full=both, sliding=both)


TARGET = make_target()
DRAFT = make_draft()
N_A = Outcome.NOT_APPLICABLE


@pytest.mark.parametrize("target", [TARGET, make_target("qwen2vl", (16, 16, 0, 0))], ids=["qwen35", "qwen2vl"])
def test_a_legacy_draft_beside_a_target_with_sections_gets_the_temporal_layout(target: ModelFacts) -> None:
    decision = decide(target, DRAFT)
    assert decision.outcome is Outcome.INFERRED
    assert decision.sections == (32, 0, 0, 0)
    adapted = make_draft(sections=decision.sections)
    assert uses_mrope(adapted)  # with sections the architecture's rope type turns to M-RoPE
    assert not uses_mrope(DRAFT)


@pytest.mark.parametrize(
    ("target", "draft", "outcome", "reason"),
    [
        pytest.param(TARGET, None, N_A, Reason.NO_DRAFT, id="no-draft"),
        pytest.param(None, DRAFT, N_A, Reason.NO_TARGET, id="no-target"),
        pytest.param(TARGET, make_draft(sections=(32, 0, 0, 0)), Outcome.EXPLICIT, Reason.OWN_SECTIONS, id="explicit"),
        pytest.param(TARGET, make_draft(hyper_connections=1), N_A, Reason.DEEPSEEK_V4, id="deepseek-v4"),
        pytest.param(TARGET, make_draft(architecture="llama"), N_A, Reason.OTHER_ARCHITECTURE, id="draft-llama"),
        pytest.param(make_target("llama"), DRAFT, N_A, Reason.TARGET_NOT_MROPE, id="target-llama-with-sections"),
        pytest.param(
            make_target(sections=(0, 0, 0, 0)), DRAFT, N_A, Reason.TARGET_WITHOUT_SECTIONS, id="target-without-sections"
        ),
        pytest.param(TARGET, make_draft(0), Outcome.INVALID, Reason.BAD_DIMENSION, id="n_rot-0"),
        pytest.param(TARGET, make_draft(63), Outcome.INVALID, Reason.BAD_DIMENSION, id="n_rot-odd"),
        pytest.param(TARGET, make_draft(66), Outcome.INVALID, Reason.BAD_DIMENSION, id="n_rot-over-head"),
        pytest.param(TARGET, make_draft(n_layers=0), Outcome.INVALID, Reason.NO_LAYERS, id="no-layers"),
        pytest.param(TARGET, make_draft(first_slides=None), Outcome.INVALID, Reason.NO_PATTERN, id="window-without-pattern"),
    ],
)
def test_guards(target: ModelFacts | None, draft: ModelFacts | None, outcome: Outcome, reason: Reason) -> None:
    decision = decide(target, draft)
    assert (decision.outcome, decision.reason) == (outcome, reason)
    assert decision.sections == ((32, 0, 0, 0) if outcome is Outcome.EXPLICIT else None)
    assert decision.text.endswith(".")


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (make_draft(0), "dflash.rope.dimension_count is 0"),
        (make_draft(63), "dflash.rope.dimension_count is 63, an odd number"),
        (make_draft(66), "dflash.rope.dimension_count is 66, more than the head of 64 (dflash.attention.key_length)"),
        (make_draft(n_layers=0), "dflash.block_count is 0"),
        (make_draft(first_slides=None), "dflash.attention.sliding_window_pattern"),
    ],
)
def test_an_invalid_draft_is_told_by_key_and_value(draft: ModelFacts, said: str) -> None:
    assert said in decide(TARGET, draft).text


def test_what_does_not_apply_comes_before_what_is_invalid() -> None:
    broken = make_draft(63, n_layers=0)
    assert decide(make_target("llama"), broken).outcome is N_A
    assert decide(TARGET, replace(broken, hyper_connections=4)).reason is Reason.DEEPSEEK_V4
    assert decide(TARGET, replace(broken, sections=(8, 8, 0, 0))).outcome is Outcome.EXPLICIT


def test_layer_0_decides_which_dimension_counts() -> None:
    both: dict[str, Any] = {"full": rope(64), "sliding": rope(48, 48, kind="_swa")}
    assert decide(TARGET, make_draft(**both)).sections == (32, 0, 0, 0)
    assert decide(TARGET, make_draft(first_slides=True, **both)).sections == (24, 0, 0, 0)
    odd: dict[str, Any] = {"full": rope(64), "sliding": rope(47, 48, kind="_swa")}
    assert "dflash.rope.dimension_count_swa is 47" in decide(TARGET, make_draft(first_slides=True, **odd)).text


@pytest.mark.parametrize(
    ("architecture", "sections", "mrope"),
    [
        *((name, (0, 0, 0, 0), True) for name in ("qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe")),
        *((name, (0, 0, 0, 0), True) for name in ("qwen4exp", "qwen3tts")),
        *((name, (8, 8, 0, 0), True) for name in ("glm4", "glm4moe", "hunyuan_vl", "bailingmoe3", "dflash")),
        *((name, (0, 0, 0, 0), False) for name in ("glm4", "glm4moe", "hunyuan_vl", "bailingmoe3", "dflash")),
        ("dflash", (16, 0, 0, 0), True),
        ("glm4", (16, 0, 0, 0), False),
        ("glm4moe", (0, 8, 8, 0), False),
        ("llama", (8, 8, 0, 0), False),
        ("qwen3", (8, 8, 0, 0), False),
    ],
)
def test_which_architectures_use_mrope(architecture: str, sections: tuple[int, ...], mrope: bool) -> None:
    assert uses_mrope(make_target(architecture, sections)) is mrope


def test_off_leaves_the_draft_alone_and_warns() -> None:
    decision = decide(TARGET, DRAFT, "off")
    assert (decision.outcome, decision.reason) == (N_A, Reason.SWITCHED_OFF)
    assert "after an image" in decision.warnings[0]
    assert decide(TARGET, make_draft(63), "off").outcome is N_A  # nothing is taken from it


@pytest.mark.parametrize("target", [make_target("llama"), make_target(sections=(0, 0, 0, 0)), None])
def test_temporal_does_not_ask_the_target(target: ModelFacts | None) -> None:
    decision = decide(target, DRAFT, "temporal")
    assert (decision.outcome, decision.reason, decision.sections) == (Outcome.INFERRED, Reason.FORCED, (32, 0, 0, 0))


def test_temporal_replaces_other_sections_and_says_so() -> None:
    decision = decide(TARGET, make_draft(sections=(11, 11, 10, 0)), "temporal")
    assert decision.sections == (32, 0, 0, 0)
    assert "[11, 11, 10, 0]" in decision.warnings[0]
    assert decide(TARGET, make_draft(sections=(32, 0, 0, 0)), "temporal").outcome is Outcome.EXPLICIT


@pytest.mark.parametrize("draft", [make_draft(63), make_draft(architecture="llama"), make_draft(hyper_connections=4)])
def test_temporal_that_cannot_be_followed_is_invalid(draft: ModelFacts) -> None:
    assert decide(TARGET, draft, "temporal").outcome is Outcome.INVALID


@pytest.mark.parametrize("mode", ["auto", "off", "temporal"])
def test_disagreement_in_size_or_base_is_a_warning(mode: Mode) -> None:
    def warnings(draft: ModelFacts) -> str:
        return " ".join(decide(TARGET, draft, mode).warnings)

    assert "different sizes" not in warnings(DRAFT)
    assert "different bases" not in warnings(DRAFT)
    assert "dflash.rope.dimension_count = 32, qwen35.rope.dimension_count = 64" in warnings(make_draft(32))
    assert "dflash.rope.freq_base = 1e+06, qwen35.rope.freq_base = 10000" in warnings(make_draft(freq_base=1e6))


def test_other_drafts_may_differ_as_they_like() -> None:
    assert decide(TARGET, make_draft(32, architecture="qwen3", freq_base=1e6)).warnings == ()


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (make_draft(n_layers=0), Reason.NO_LAYERS),
        (make_draft(n_layers=0, architecture="llama"), Reason.NO_LAYERS),
        (make_draft(66), Reason.BAD_DIMENSION),
        (make_draft(sections=(0, 0, 0, 32)), Reason.BAD_SECTIONS),
    ],
)
def test_what_would_end_the_process_is_invalid_beside_any_target(draft: ModelFacts, reason: Reason) -> None:
    text_only = make_target("llama", (0, 0, 0, 0))
    assert decide(text_only, draft).outcome is N_A
    decision: Decision = judge(text_only, draft)
    assert (decision.outcome, decision.reason) == (Outcome.INVALID, reason)
    assert judge(text_only, DRAFT) == decide(text_only, DRAFT)
