"""Slots of a llama-server, in every shape that its versions have given them. Pure.

A slot that never ran tells four fields; an idle one repeats its last task; `next_token` is a list of one object or, in older
versions, the object; the oldest tell `state` instead of `is_processing` and no prompt counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_api.figures import Service
from scheduler_api.kinds.fields import Json, count, items, mapping


@dataclass(frozen=True, slots=True)
class RawSlot:
    """What one slot told; None is not told. `n_tokens` is what its cells hold."""

    id: int
    processing: bool
    task: int | None
    n_ctx: int | None
    n_processed: int | None
    n_cached: int | None
    n_generated: int | None
    n_tokens: int | None
    n_predict: int | None
    shape: str


def _next_token(raw: Json) -> tuple[Json, str]:
    value = raw.get("next_token")
    if isinstance(value, list):
        return mapping(value[0]) if value else {}, "next_token as a list"
    return (value, "next_token as an object") if isinstance(value, dict) else ({}, "")


def _processing(raw: Json) -> tuple[bool, str]:
    if isinstance(raw.get("is_processing"), bool):
        return raw["is_processing"], "is_processing"
    return (count(raw.get("state")) or 0) > 0, "state"


def parse_slot(raw: Json) -> RawSlot | None:
    """None when it has no id."""
    slot = count(raw.get("id"))
    if slot is None:
        return None
    processing, how = _processing(raw)
    token, token_shape = _next_token(raw)
    counted = "prompt counts" if "n_prompt_tokens" in raw else ""
    return RawSlot(
        id=slot,
        processing=processing,
        task=count(raw.get("id_task")),
        n_ctx=count(raw.get("n_ctx")),
        n_processed=count(raw.get("n_prompt_tokens_processed")),
        n_cached=count(raw.get("n_prompt_tokens_cache")),
        n_generated=count(token.get("n_decoded")),
        n_tokens=count(raw.get("n_prompt_tokens")),
        n_predict=count(mapping(raw.get("params")).get("n_predict")) or None,
        shape=", ".join(part for part in (how, token_shape, counted) if part),
    )


def parse_slots(raw: Any) -> list[RawSlot]:
    found = [slot for value in items(raw) if (slot := parse_slot(mapping(value))) is not None]
    return list({slot.id: slot for slot in found}.values())


def shape_of(slots: Sequence[RawSlot]) -> str:
    """The fullest shape among the slots: those that never ran tell less."""
    return max((slot.shape for slot in slots), key=len, default="")


@dataclass(frozen=True, slots=True)
class _Seen:
    raw: RawSlot
    state: str
    since: float
    moved_at: float


@dataclass(slots=True)
class SlotTracker:
    """Compares each poll with the one before: who was served in between, and since when a slot is in its state."""

    seen: dict[int, _Seen] = field(default_factory=dict)
    polled_at: float | None = None

    def update(self, slots: Sequence[RawSlot], now: float) -> tuple[list[Json], list[Service]]:
        start = now if self.polled_at is None else self.polled_at
        moved = {slot.id: _moved(slot, self.seen.get(slot.id)) for slot in slots}
        services = [Service(slot, start, now, *tokens) for slot, tokens in moved.items() if sum(tokens) > 0]
        served = {service.slot for service in services}
        self.seen = {slot.id: self._look(slot, now, served) for slot in slots}
        self.polled_at = now
        return [_frame_slot(self.seen[slot.id]) for slot in slots], services

    def shown_at_first(self, slots: Sequence[RawSlot]) -> tuple[int, int]:
        """(prompt, generated) tokens of tasks that were already running at the first look; (0, 0) at any later one."""
        counts = [_counters(slot) for slot in slots if slot.processing] if self.polled_at is None else []
        return sum(prompt for prompt, _ in counts), sum(generated for _, generated in counts)

    def has_restarted(self, slots: Sequence[RawSlot]) -> bool:
        """A slot's task numbers only grow, and it never forgets that it ran, while a process lives."""
        return any(_is_younger(slot, self.seen[slot.id].raw) for slot in slots if slot.id in self.seen)

    def _look(self, slot: RawSlot, now: float, served: set[int]) -> _Seen:
        before = self.seen.get(slot.id)
        state = _state(slot, before, served)
        same = before is not None and before.state == state and before.raw.task == slot.task
        since = before.since if same and before is not None else now
        moved_at = now if slot.id in served or before is None or before.raw.task != slot.task else before.moved_at
        return _Seen(slot, state, since, moved_at)


def _is_younger(slot: RawSlot, before: RawSlot) -> bool:
    if slot.task is not None and before.task is not None:
        return slot.task < before.task
    return before.n_generated is not None and not slot.processing and slot.task is None and slot.n_generated is None


def _counters(slot: RawSlot) -> tuple[int, int]:
    return (slot.n_processed or 0, slot.n_generated or 0)


def _same_task(slot: RawSlot, before: _Seen) -> bool:
    now, then = _counters(slot), _counters(before.raw)
    return slot.task == before.raw.task and now[0] >= then[0] and now[1] >= then[1]


def _moved(slot: RawSlot, before: _Seen | None) -> tuple[int, int]:
    """(prompt, generated) tokens computed since the last poll. A new task's counts all came since then.

    None at the first poll: how long it took to get there is not known.
    """
    prompt, generated = _counters(slot)
    if before is None:
        return 0, 0
    if _same_task(slot, before):
        then = _counters(before.raw)
        return prompt - then[0], generated - then[1]
    return prompt, generated


def _state(slot: RawSlot, before: _Seen | None, served: set[int]) -> str:
    """`waiting` is prompt work that stood still while another slot was served, or that was not yet begun."""
    if not slot.processing:
        return "idle"
    if slot.n_generated:
        return "generating"
    if slot.n_processed is None or slot.id in served:
        return "prompt"
    if slot.n_processed == 0:
        return "waiting"
    if served:
        return "waiting"
    return before.state if before is not None and before.raw.task == slot.task and before.state != "idle" else "prompt"


def _frame_slot(seen: _Seen) -> Json:
    """As docs/protocol.md has a slot. What a llama-server does not tell is None; an idle slot has no task."""
    raw, busy = seen.raw, seen.state != "idle"
    done = seen.state == "generating"
    prompt = (raw.n_cached or 0) + raw.n_processed if raw.n_processed is not None else None
    shown: Mapping[str, int | None] = {
        "n_prompt": prompt if done else None,
        "n_cached": raw.n_cached,
        "n_processed": raw.n_processed,
        "n_generated": raw.n_generated,
        "n_predict": raw.n_predict,
    }
    return {
        "id": raw.id,
        "state": seen.state,
        "task": raw.task if busy else None,
        "client": "",
        "group": "",
        "n_ctx": raw.n_ctx,
        "n_tokens": raw.n_tokens,
        **{name: value if busy else None for name, value in shown.items()},
        "since": seen.since,
        **dict.fromkeys(("submitted_at", "first_visit_at", "prompt_done_at", "first_token_at")),
        "member": False,
        "waiting_for": "",
        "last_service_iteration": None,
    }
