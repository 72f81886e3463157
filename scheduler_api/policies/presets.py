"""Policies under names: those that come with the console, and those that operators keep."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from scheduler_api import audit
from scheduler_api.policies.models import PolicyPreset
from scheduler_api.policies.values import Json, Named

_OFF: Json = {
    "phase": "continuous",
    "prefill_chunk": None,
    "decode_share": None,
    "barrier_join": "first_completion",
    "barrier_join_window_ms": 1000,
    "barrier_max_hold_ms": None,
    "barrier_max_generation_tokens": None,
}
#: By a word that stands in addresses. docs/scheduler.md explains what each field does.
BUILT_IN: dict[str, Named] = {
    "as-llama-server": Named(
        "As llama-server",
        "Every field as it is at the start: schedules as llama-server does.",
        {"prefill_order": "physical", "rotation_start": "after_first", **_OFF, "speculative": "off"},
    ),
    "chat-beside-documents": Named(
        "Chat beside documents",
        "A long prompt shares each round with the others, and short ones are not kept waiting behind it.",
        {**_OFF, "prefill_order": "rotating", "rotation_start": "after_first"},
    ),
    "equal-shares": Named(
        "Equal shares",
        "Every waiting prompt gets an equal part of each batch.",
        {**_OFF, "prefill_order": "fair"},
    ),
    "steady-streams": Named(
        "Steady streams",
        "Streams keep half of the time while prompts come in, and no batch keeps them waiting for long.",
        {**_OFF, "prefill_order": "fair", "prefill_chunk": 512, "decode_share": 0.5},
    ),
    "cohorts-with-caps": Named(
        "Cohorts, with caps",
        "Prompts of a cohort first, then all generate; no one is held for more than 8 s, and newcomers get in after 256 tokens.",
        {**_OFF, "phase": "barrier", "barrier_max_hold_ms": 8000, "barrier_max_generation_tokens": 256},
    ),
}


def all_presets() -> list[tuple[str, Named, PolicyPreset | None]]:
    """(key, policy, its row), built-in ones first."""
    built_in = [(key, policy, None) for key, policy in BUILT_IN.items()]
    return [*built_in, *((str(row.pk), as_named(row), row) for row in PolicyPreset.objects.all())]


def find(key: str) -> Named | None:
    if key in BUILT_IN:
        return BUILT_IN[key]
    row = PolicyPreset.objects.filter(pk=int(key)).first() if key.isdecimal() and len(key) < 19 else None
    return as_named(row) if row is not None else None


def as_named(row: PolicyPreset) -> Named:
    return Named(row.name, row.meaning, row.values)


def keep(policy: Named, by: User) -> PolicyPreset:
    """Under its name; one that is there already is replaced."""
    with transaction.atomic():
        before = PolicyPreset.objects.filter(name=policy.name).first()
        old = before.values if before is not None else None
        row, made = PolicyPreset.objects.update_or_create(
            name=policy.name, defaults={"meaning": policy.meaning, "values": policy.values, "by_name": by.get_username()}
        )
        audit.record("preset.kept" if made else "preset.changed", policy.name, actor=by, before=old, after=policy.values)
    return row


def remove(row: PolicyPreset, by: User) -> None:
    with transaction.atomic():
        audit.record("preset.removed", row.name, actor=by, before=row.values)
        row.delete()
