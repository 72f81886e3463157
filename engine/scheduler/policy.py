"""The policies that can be switched while the server serves: their values, their limits and how a change is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum


class PrefillOrder(StrEnum):
    PHYSICAL = "physical"
    ROTATING = "rotating"
    FAIR = "fair"
    SHORTEST_FIRST = "shortest_first"


class RotationStart(StrEnum):
    AFTER_LAST = "after_last"
    AFTER_FIRST = "after_first"


class PhaseMode(StrEnum):
    CONTINUOUS = "continuous"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class Policy:
    """A complete set of scheduling policies. The defaults schedule as llama-server does."""

    prefill_order: PrefillOrder = PrefillOrder.PHYSICAL
    rotation_start: RotationStart = RotationStart.AFTER_FIRST
    phase: PhaseMode = PhaseMode.CONTINUOUS
    prefill_chunk: int | None = None
    barrier_max_hold_ms: int | None = None

    def as_dict(self) -> dict[str, object]:
        return {name: _plain(getattr(self, name)) for name in FIELDS}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One policy field: either an enum (`values`) or a whole number in `minimum`..`maximum`, where null means no limit."""

    default: object
    meaning: str
    takes_effect: str
    values: type[StrEnum] | None = None
    minimum: int = 1
    maximum: int = 1 << 31

    @property
    def allowed(self) -> tuple[object, ...]:
        if self.values is not None:
            return tuple(member.value for member in self.values)
        return (f"{self.minimum} to {self.maximum}", None)

    def parse(self, name: str, value: object) -> object:
        """The value as the policy holds it; raises PolicyInvalid."""
        if self.values is not None:
            if isinstance(value, str) and value in self.allowed:
                return self.values(value)
            raise PolicyInvalid(name, f"{name} must be one of {', '.join(map(str, self.allowed))}", self.allowed)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and self.minimum <= value <= self.maximum:
            return value
        raise PolicyInvalid(name, f"{name} must be a whole number from {self.minimum} to {self.maximum}, or null", self.allowed)

    def as_dict(self) -> dict[str, object]:
        common: dict[str, object] = {"default": _plain(self.default), "meaning": self.meaning, "takes_effect": self.takes_effect}
        if self.values is not None:
            return {"values": list(self.allowed), **common}
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum, "nullable": True, **common}


class PolicyInvalid(ValueError):
    """A change that no policy can follow: names the field and what it allows."""

    def __init__(self, field: str, message: str, allowed: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
        self.allowed = allowed


NEXT_ITERATION = "next iteration"

FIELDS: dict[str, FieldSpec] = {
    "prefill_order": FieldSpec(
        PrefillOrder.PHYSICAL,
        "Whose prompt enters the next batch first. physical: lowest slot first, as llama-server does. rotating: starts after "
        "a slot served in the batch before. fair: every waiting slot gets an equal share. shortest_first: fewest tokens left "
        "first, long prompts can starve.",
        NEXT_ITERATION,
        values=PrefillOrder,
    ),
    "rotation_start": FieldSpec(
        RotationStart.AFTER_FIRST,
        "Where the rotating order starts. after_first: after the first slot served in the batch before, so each waiting slot "
        "leads a batch once a round. after_last: after the last one, which can squeeze or starve a slot.",
        NEXT_ITERATION,
        values=RotationStart,
    ),
    "phase": FieldSpec(
        PhaseMode.CONTINUOUS,
        "Whether prompts and generation may share a batch. continuous: generation goes on beside prompts. barrier: all prompts "
        "of a cohort first, then all its slots generate together.",
        "next iteration; what generates then drains first, held first tokens are let go at once",
        values=PhaseMode,
    ),
    "prefill_chunk": FieldSpec(
        None,
        "The most prompt tokens one slot may put into a batch; null for no limit. Smaller chunks shorten stalls and cost "
        "throughput.",
        NEXT_ITERATION,
    ),
    "barrier_max_hold_ms": FieldSpec(
        None,
        "Under a barrier, how long a finished prompt may be held, in milliseconds; null for no limit. Then the finished ones "
        "generate, and unfinished prompts keep what they have and join the next cohort.",
        "next iteration; checked after each batch",
        maximum=3_600_000,
    ),
}


def table(n_batch: int) -> dict[str, FieldSpec]:
    """The fields with this server's limits in them."""
    return {**FIELDS, "prefill_chunk": replace(FIELDS["prefill_chunk"], maximum=n_batch)}


def changed(policy: Policy, changes: Mapping[str, object], specs: Mapping[str, FieldSpec]) -> Policy:
    """The policy with the changes in it; raises PolicyInvalid for an unknown field or a value that the field does not allow."""
    parsed: dict[str, object] = {}
    for name, value in changes.items():
        spec = specs.get(name)
        if spec is None:
            raise PolicyInvalid(name, f"there is no policy field {name}", tuple(specs))
        parsed[name] = spec.parse(name, value)
    return replace(policy, **parsed)  # type: ignore[arg-type]


def resolve(requested: Policy, kv_mode: str) -> tuple[Policy, dict[str, str]]:
    """What is in force for a request, and for each field that differs the sentence that says why."""
    if kv_mode == "unified" and requested.prefill_order is not PrefillOrder.PHYSICAL:
        reason = (
            "The KV cache is unified: slots share one pool without a reservation, so interleaved prompts could fill it "
            "with none of them done. Prompts keep physical order."
        )
        return replace(requested, prefill_order=PrefillOrder.PHYSICAL), {"prefill_order": reason}
    return requested, {}


def capabilities(specs: Mapping[str, FieldSpec]) -> dict[str, object]:
    """The `capabilities` object of GET /scheduler."""
    return {"policy": {name: spec.as_dict() for name, spec in specs.items()}, "ttl": True, "events": True}


def _plain(value: object) -> object:
    return value.value if isinstance(value, StrEnum) else value


assert set(FIELDS) == {field.name for field in fields(Policy)}
