"""The scheduler as an operator sees it: the GET /scheduler object without "server", in plain JSON types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.scheduler import waits
from engine.scheduler.phases import Phases
from engine.scheduler.slots import PROMPT_DONE, Slot
from engine.scheduler.task import Group


@dataclass(slots=True)
class Totals:
    """Counters since the start: `drafts` are runs of drafted tokens, of which the accepted ones were right.

    Seconds are sums over tasks: first visit to end of prompt, first token to end.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    iterations: int = 0
    tasks_finished: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    drafts: int = 0
    prompt_s: float = 0.0
    generation_s: float = 0.0

    def as_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


def slot_view(slot: Slot, phases: Phases, n_ctx_slot: int) -> dict[str, object]:
    task = slot.task
    return {
        "id": slot.id,
        "state": slot.state.value,
        "since": slot.since,
        "task": None if task is None else task.id,
        "client": "" if task is None else task.client,
        "group": "" if task is None else group_name(slot),
        "n_ctx": n_ctx_slot,
        "n_prompt": len(slot.prompt),
        "n_cached": slot.n_cached,
        "n_processed": slot.done - slot.n_cached,
        "n_generated": slot.n_generated,
        "n_predict": -1 if task is None else task.n_predict,
        "n_tokens": len(slot.cells),
        "n_drafted": slot.n_drafted,
        "n_accepted": slot.n_accepted,
        "submitted_at": None if task is None else slot.submitted_at,
        "first_visit_at": slot.first_visit_at,
        "prompt_done_at": slot.prompt_done_at,
        "first_token_at": slot.first_token_at,
        "member": slot.member,
        "waiting_for": waits.of(slot, phases),
        "last_service_iteration": slot.last_service,
    }


def group_name(slot: Slot) -> str:
    return "" if slot.group is None else name_of(slot.group)


def name_of(group: Group) -> str:
    """Task type, and the LoRA list where there is one: `completion lora 0:1.0`."""
    lora = " ".join(f"{adapter}:{scale:g}" for adapter, scale in group.lora)
    return f"{group.type.value} lora {lora}" if lora else group.type.value


def phase_view(phases: Phases, now: float) -> dict[str, object]:
    cohort: dict[str, object] | None = None
    if phases.cohort is not None:
        members: Sequence[Slot] = phases.members()
        cohort = {
            "id": phases.cohort.id,
            "members": [slot.id for slot in members],
            "completed": [slot.id for slot in members if slot.state in PROMPT_DONE],
            "age_s": max(0.0, now - phases.cohort.began_at),
        }
    return {"name": phases.name.value, "sealed": phases.sealed, "cohort": cohort}
