"""The arms of an experiment as differences of policy: what a form offers and what it sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.policy_page import NotANumber, limits, number_in
from dashboard.policy_words import DEPENDS_ON, unit
from workers.errors import ExperimentRefused

# fields that an arm can set, in the order of the form, with what they are called there
LABELS = {
    "prefill_order": "prefill order",
    "rotation_start": "rotation starts",
    "phase": "phase",
    "barrier_join": "cohort closes at",
    "barrier_join_window_ms": "window to join",
    "barrier_max_hold_ms": "longest hold",
    "barrier_max_generation_tokens": "tokens at a stretch",
    "prefill_chunk": "prefill chunk",
    "decode_share": "share of generation",
    "speculative": "drafts",
    "speculative_n_max": "draft at most",
    "speculative_n_min": "draft at least",
    "speculative_ngram_size": "tokens looked up",
}
DEFAULTS = {"A": {"prefill_order": "physical"}, "B": {"prefill_order": "rotating"}}
OFF = "off"


@dataclass(frozen=True, slots=True)
class Choice:
    """One field of an arm: a select of `values`, or a number as text where there are none."""

    name: str  # of the form's field: "a-prefill_order"
    label: str
    field: str
    values: tuple[tuple[str, str], ...]
    chosen: str
    meaning: str
    needs: str  # what it may be, and what must be chosen for it to count, in words; ""


def choices(arm: str, fields: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[Choice]:
    """The fields of one arm, from the server's `switching.fields`; `chosen` is the form's data."""
    return [_choice(f"{arm.lower()}-{field}", field, fields[field], chosen) for field in LABELS if field in fields]


def _choice(name: str, field: str, spec: Mapping[str, Any], chosen: Mapping[str, Any]) -> Choice:
    values = tuple((str(value), words(value)) for value in spec.get("values") or ())
    picked = chosen.get(name, "")
    said = [] if values else [f"{unit(field)}, {_limits(spec)}".strip(" ,")]
    if field in DEPENDS_ON:
        said.append(f"counts with {LABELS[DEPENDS_ON[field][0]]} {words(DEPENDS_ON[field][1])}")
    return Choice(
        name=name,
        label=LABELS[field],
        field=field,
        values=(("", "as it is now"), *values) if values else (),
        chosen=OFF if picked is None else str(picked),
        meaning=str(spec.get("meaning", "")),
        needs="; ".join(said),
    )


def asked(arm: str, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of an arm from a form's data: known fields with allowed values, without those that would not count.

    Raises ExperimentRefused for a number that the field does not allow.
    """
    policy: dict[str, Any] = {}
    for field in LABELS:
        value, spec = str(sent.get(f"{arm.lower()}-{field}", "")).strip(), fields.get(field) or {}
        if not value or not spec:
            continue
        if not spec.get("values"):
            policy[field] = _number(arm, field, value, spec)
        elif value in [str(allowed) for allowed in spec["values"]]:
            policy[field] = value
    return {field: value for field, value in policy.items() if _counts(policy, field)}


def _number(arm: str, field: str, text: str, spec: Mapping[str, Any]) -> float | None:
    may_be = f"Arm {arm}, {LABELS[field]}: {_limits(spec)}; it is {text}."
    try:
        value = number_in(field, "" if text == OFF else text, dict(spec))
    except NotANumber:
        raise ExperimentRefused(may_be) from None
    if value is not None and not spec.get("minimum", value) <= value <= spec.get("maximum", value):
        raise ExperimentRefused(may_be)
    return value


def _limits(spec: Mapping[str, Any]) -> str:
    return limits(spec).replace(", empty for off", f" or {OFF}").strip(".")


def _counts(policy: Mapping[str, Any], field: str) -> bool:
    if field not in DEPENDS_ON:
        return True
    other, value = DEPENDS_ON[field]
    return policy.get(other) == value and _counts(policy, other)


def words(value: Any) -> str:
    return "not set" if value is None else str(value).replace("_", " ")


def title(arm_a: str, arm_b: str) -> str:
    name = f"{arm_b} against {arm_a}" if arm_a != arm_b else f"equal arms, {arm_a}"
    return name[:1].upper() + name[1:]


def full(policy: Mapping[str, Any]) -> str:
    """All fields that an arm sets."""
    return (
        ", ".join(f"{LABELS.get(field, field.replace('_', ' '))}: {words(value)}" for field, value in policy.items()) or "nothing"
    )
