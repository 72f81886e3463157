"""The arms of an experiment as differences of policy: what a form offers and what it sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# fields that an arm can set, in the order of the form, with what they are called there
LABELS = {
    "prefill_order": "prefill order",
    "rotation_start": "rotation starts",
    "phase": "phase",
    "barrier_join": "cohort closes at",
}
NEEDS = {"rotation_start": ("prefill_order", "rotating"), "barrier_join": ("phase", "barrier")}
DEFAULTS = {"A": {"prefill_order": "physical"}, "B": {"prefill_order": "rotating"}}


@dataclass(frozen=True, slots=True)
class Choice:
    name: str  # of the form's field: "a-prefill_order"
    label: str
    field: str
    values: tuple[tuple[str, str], ...]
    chosen: str
    meaning: str
    needs: str  # what must be chosen for it to count, in words; ""


def choices(arm: str, fields: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[Choice]:
    """The selects of one arm, from the server's `switching.fields`; `chosen` is the form's data."""
    offered = [field for field in LABELS if fields.get(field, {}).get("values")]
    return [
        Choice(
            name=f"{arm.lower()}-{field}",
            label=LABELS[field],
            field=field,
            values=(("", "as it is now"), *((str(value), words(value)) for value in fields[field]["values"])),
            chosen=str(chosen.get(f"{arm.lower()}-{field}", "")),
            meaning=str(fields[field].get("meaning", "")),
            needs=f"counts with {LABELS[NEEDS[field][0]]} {NEEDS[field][1]}" if field in NEEDS else "",
        )
        for field in offered
    ]


def asked(arm: str, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of an arm from a form's data: known fields with allowed values, without those that would not count."""
    policy = {}
    for field in LABELS:
        value = sent.get(f"{arm.lower()}-{field}", "")
        if value and value in [str(allowed) for allowed in fields.get(field, {}).get("values") or []]:
            policy[field] = value
    return {
        field: value for field, value in policy.items() if field not in NEEDS or policy.get(NEEDS[field][0]) == NEEDS[field][1]
    }


def words(value: Any) -> str:
    return "not set" if value is None else str(value).replace("_", " ")


def title(arm_a: str, arm_b: str) -> str:
    name = f"{arm_b} against {arm_a}"
    return name[:1].upper() + name[1:]


def full(policy: Mapping[str, Any]) -> str:
    """All fields that an arm sets."""
    return (
        ", ".join(f"{LABELS.get(field, field.replace('_', ' '))}: {words(value)}" for field, value in policy.items()) or "nothing"
    )
