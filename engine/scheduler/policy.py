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


class BarrierJoin(StrEnum):
    FIRST_COMPLETION = "first_completion"
    WINDOW = "window"


class Speculative(StrEnum):
    OFF = "off"
    NGRAM = "ngram"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Policy:
    """A complete set of scheduling policies. The defaults schedule as llama-server does."""

    prefill_order: PrefillOrder = PrefillOrder.PHYSICAL
    rotation_start: RotationStart = RotationStart.AFTER_FIRST
    phase: PhaseMode = PhaseMode.CONTINUOUS
    prefill_chunk: int | None = None
    decode_share: float | None = None
    barrier_join: BarrierJoin = BarrierJoin.FIRST_COMPLETION
    barrier_join_window_ms: int = 1000
    barrier_max_hold_ms: int | None = None
    barrier_max_generation_tokens: int | None = None
    speculative: Speculative = Speculative.OFF
    speculative_n_max: int = 16
    speculative_n_min: int = 0
    speculative_ngram_size: int = 4

    @property
    def takes_turns(self) -> bool:
        """Nobody is passed over without a bound; physical order and after_last schedule as their originals do."""
        return self.prefill_order in (PrefillOrder.FAIR, PrefillOrder.SHORTEST_FIRST) or (
            self.prefill_order is PrefillOrder.ROTATING and self.rotation_start is RotationStart.AFTER_FIRST
        )

    def as_dict(self) -> dict[str, object]:
        return {name: _plain(getattr(self, name)) for name in FIELDS}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One policy field: an enum (`values`), or a number in `minimum`..`maximum`, whole unless `fraction`; null is no limit."""

    default: object
    meaning: str
    takes_effect: str
    values: type[StrEnum] | None = None
    minimum: float = 1
    maximum: float = 1 << 31
    fraction: bool = False
    nullable: bool = True

    @property
    def allowed(self) -> tuple[object, ...]:
        if self.values is not None:
            return tuple(member.value for member in self.values)
        return (f"{self.minimum} to {self.maximum}", *((None,) if self.nullable else ()))

    def parse(self, name: str, value: object) -> object:
        """The value as the policy holds it; raises PolicyInvalid."""
        if self.values is not None:
            if isinstance(value, str) and value in self.allowed:
                return self.values(value)
            raise PolicyInvalid(name, f"{name} must be one of {', '.join(map(str, self.allowed))}", self.allowed)
        if value is None and self.nullable:
            return None
        kinds = (int, float) if self.fraction else (int,)
        if isinstance(value, kinds) and not isinstance(value, bool) and self.minimum <= value <= self.maximum:
            return value
        kind, null = "number" if self.fraction else "whole number", ", or null" if self.nullable else ""
        raise PolicyInvalid(name, f"{name} must be a {kind} from {self.minimum} to {self.maximum}{null}", self.allowed)

    def as_dict(self) -> dict[str, object]:
        common: dict[str, object] = {"default": _plain(self.default), "meaning": self.meaning, "takes_effect": self.takes_effect}
        if self.values is not None:
            return {"values": list(self.allowed), **common}
        kind = "number" if self.fraction else "integer"
        return {"type": kind, "minimum": self.minimum, "maximum": self.maximum, "nullable": self.nullable, **common}


class PolicyInvalid(ValueError):
    """A change that no policy can follow: names the field and what it allows."""

    def __init__(self, field: str, message: str, allowed: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
        self.allowed = allowed


NEXT_ITERATION = "next iteration"
MOST_DRAFTED = 64  # tokens in a batch, of all slots together: each needs room for a row of logits

FIELDS: dict[str, FieldSpec] = {
    "prefill_order": FieldSpec(
        PrefillOrder.PHYSICAL,
        "Whose prompt enters the next batch first. physical: lowest slot first, as llama-server does. rotating: starts after "
        "a slot served in the batch before. fair: every waiting slot gets an equal share. shortest_first: fewest tokens left "
        "first; one that is passed over for long gets its turn.",
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
        "The most prompt tokens in a batch, of all slots together; null for no limit but the batch's own. Smaller chunks "
        "shorten stalls and cost throughput.",
        NEXT_ITERATION,
    ),
    "decode_share": FieldSpec(
        None,
        "The share of the time that generating slots keep while prompts come in, 0.5 for half of it; null for none. Prompts wait "
        "until generation has had its share.",
        "next iteration; counts while prompts and generation contend",
        minimum=0.01,
        maximum=0.99,
        fraction=True,
    ),
    "barrier_join": FieldSpec(
        BarrierJoin.FIRST_COMPLETION,
        "Under a barrier, how long a cohort takes arrivals in. first_completion: until its first prompt is done. window: for a "
        "time after it began.",
        "next iteration; a cohort that is sealed stays so",
        values=BarrierJoin,
    ),
    "barrier_join_window_ms": FieldSpec(
        1000,
        "How long a cohort takes arrivals in, in milliseconds after it began. It closes earlier when all its prompts are done.",
        NEXT_ITERATION,
        maximum=3_600_000,
        nullable=False,
    ),
    "barrier_max_hold_ms": FieldSpec(
        None,
        "Under a barrier, how long a finished prompt may be held, in milliseconds; null for no limit. Then the finished ones "
        "generate, and unfinished prompts keep what they have and join the next cohort.",
        "next iteration; checked after each batch",
        maximum=3_600_000,
    ),
    "barrier_max_generation_tokens": FieldSpec(
        None,
        "Under a barrier, how many tokens each member generates before waiting prompts get the next phase; null for no limit. "
        "Members that are not done go on after those prompts.",
        NEXT_ITERATION,
    ),
    "speculative": FieldSpec(
        Speculative.OFF,
        "Where drafted tokens come from, which a batch without prompts checks beside the next one. off: nowhere. ngram: from "
        "what followed the last tokens earlier in the slot's own text. draft: from a draft model. The output stays the same.",
        NEXT_ITERATION,
        values=Speculative,
    ),
    "speculative_n_max": FieldSpec(
        16,
        "The most tokens drafted for a slot in one batch. Fewer are drafted where they were seldom right or cost more than they "
        "bring; a request can ask for fewer.",
        NEXT_ITERATION,
        maximum=MOST_DRAFTED,
        nullable=False,
    ),
    "speculative_n_min": FieldSpec(
        0,
        "A draft with fewer tokens than this is dropped.",
        NEXT_ITERATION,
        minimum=0,
        maximum=MOST_DRAFTED,
        nullable=False,
    ),
    "speculative_ngram_size": FieldSpec(
        4,
        "How many tokens in a row must have occurred before for what followed them to be drafted. Smaller finds more and errs "
        "more often.",
        NEXT_ITERATION,
        maximum=32,
        nullable=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Drafts:
    """What the loaded models allow: `can_take_back` drafted tokens out of the memory, and a draft `model` that makes some.

    `unfit`: why the draft model that was asked for makes none.
    """

    can_take_back: bool = True
    model: bool = True
    unfit: str = ""

    def why_not(self, wanted: Speculative) -> str:
        """The sentence for a policy that cannot be followed, else nothing."""
        if wanted is Speculative.OFF:
            return ""
        if not self.can_take_back:
            return (
                "This model's memory cannot take back single tokens (it is recurrent), so a drafted token that proves wrong "
                "would stay. Nothing is drafted."
            )
        if wanted is Speculative.DRAFT and self.unfit:
            return f"The draft model cannot draft for this model: {self.unfit}. Nothing is drafted; ngram needs no draft model."
        if wanted is Speculative.DRAFT and not self.model:
            return "No draft model is loaded, so nothing is drafted. Start the engine with --model-draft, or choose ngram."
        return ""


ANY_DRAFTS = Drafts()


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


def resolve(requested: Policy, kv_mode: str, drafts: Drafts = ANY_DRAFTS) -> tuple[Policy, dict[str, str]]:
    """What is in force for a request, and for each field that differs the sentence that says why."""
    effective, reasons = requested, {}
    if kv_mode == "unified" and requested.prefill_order is not PrefillOrder.PHYSICAL:
        effective = replace(effective, prefill_order=PrefillOrder.PHYSICAL)
        reasons["prefill_order"] = (
            "The KV cache is unified: slots share one pool without a reservation, so interleaved prompts could fill it "
            "with none of them done. Prompts keep physical order."
        )
    if requested.phase is PhaseMode.BARRIER and requested.decode_share is not None:
        effective = replace(effective, decode_share=None)
        reasons["decode_share"] = (
            "The phase is barrier: prompts and generation never contend for a batch, so there is nothing to share. "
            "It counts again under continuous."
        )
    why_not = drafts.why_not(requested.speculative)
    if why_not:
        effective = replace(effective, speculative=Speculative.OFF)
        reasons["speculative"] = why_not
    return effective, reasons


def capabilities(specs: Mapping[str, FieldSpec]) -> dict[str, object]:
    """The `capabilities` object of GET /scheduler."""
    return {"policy": {name: spec.as_dict() for name, spec in specs.items()}, "ttl": True, "events": True}


def _plain(value: object) -> object:
    return value.value if isinstance(value, StrEnum) else value


assert set(FIELDS) == {field.name for field in fields(Policy)}
