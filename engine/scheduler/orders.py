"""In which order the prompt pass visits the slots that have prompt work, and how the room of a batch is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduler.policy import Policy, PrefillOrder, RotationStart
from engine.scheduler.slots import Slot
from engine.scheduler.task import Group


def rotated(ids: Sequence[int], cursor: int | None, n_slots: int) -> int:
    """Index in `ids` (ascending slot ids) of the first slot of the circle that starts after the cursor; 0 without a cursor.

    A cursor outside 0..n_slots-1 is taken modulo the number of slots.
    """
    if cursor is None or n_slots == 0 or not ids:
        return 0
    start = (cursor + 1) % n_slots
    return next((index for index, slot_id in enumerate(ids) if slot_id >= start), 0)


def visit_order(pending: list[Slot], policy: Policy, cursor: int | None, n_slots: int) -> list[Slot]:
    """`pending` is in slot order. The order is of positions: slots themselves never move."""
    match policy.prefill_order:
        case PrefillOrder.PHYSICAL:
            return pending
        case PrefillOrder.SHORTEST_FIRST:
            return sorted(pending, key=lambda slot: (slot.left, slot.id))
        case PrefillOrder.ROTATING | PrefillOrder.FAIR:
            first = rotated([slot.id for slot in pending], cursor, n_slots)
            return pending[first:] + pending[:first]


def next_cursor(cursor: int | None, takes: Sequence[Take], policy: Policy) -> int | None:
    """The cursor after a pass. Only slots that put tokens into the batch move it, whatever becomes of them afterwards."""
    if not takes:
        return cursor
    if policy.prefill_order is PrefillOrder.FAIR:
        return takes[0].slot.id
    if policy.prefill_order is PrefillOrder.ROTATING:
        return takes[0 if policy.rotation_start is RotationStart.AFTER_FIRST else -1].slot.id
    return cursor


@dataclass(slots=True)
class Take:
    """`n` prompt tokens of a slot for this batch."""

    slot: Slot
    n: int


@dataclass(slots=True)
class Division:
    """Who gets what, in visiting order, and who gets nothing for which cause."""

    takes: list[Take] = field(default_factory=list)
    full: list[Slot] = field(default_factory=list)
    mismatched: list[Slot] = field(default_factory=list)
    too_big: list[tuple[Slot, int]] = field(default_factory=list)  # atomic, and the room that was left for it


def divide(order: Sequence[Slot], room: int, group: Group | None, *, chunk: int | None, equal: bool) -> Division:
    """Divides `room` tokens among the slots of one group: the given one, else that of the first slot that takes any.

    Greedy: each slot in turn takes all it can use. Equal: each takes an equal part of what is left, and what the later ones
    leave goes back to those that can use more, so no room is wasted while somebody has work.
    """
    division = Division()
    fitting: list[Slot] = []
    for slot in order:
        if group is not None and slot.group is not group:
            division.mismatched.append(slot)
            continue
        if group is None and not (slot.atomic and slot.left > room):
            group = slot.group
        fitting.append(slot)
    takes = _equal(fitting, room, chunk, division) if equal else _greedy(fitting, room, chunk, division)
    division.takes = [take for take in takes if take.n > 0]
    return division


def _greedy(order: Sequence[Slot], room: int, chunk: int | None, division: Division) -> list[Take]:
    takes = []
    for slot in order:
        if room <= 0:
            division.full.append(slot)
        elif slot.atomic and slot.left > room:
            division.too_big.append((slot, room))
        else:
            take = Take(slot, min(_want(slot, chunk), room))
            room -= take.n
            takes.append(take)
    return takes


def _equal(order: Sequence[Slot], room: int, chunk: int | None, division: Division) -> list[Take]:
    takes: list[Take] = []
    for index, slot in enumerate(order):
        if room <= 0:
            division.full.append(slot)
        elif slot.atomic and slot.left > room:
            division.too_big.append((slot, room))
        else:
            share = slot.left if slot.atomic else _part(room, len(order) - index)
            take = Take(slot, min(_want(slot, chunk), share))
            room -= take.n
            takes.append(take)
    _give_back(takes, room, chunk)
    return takes


def _give_back(takes: Sequence[Take], room: int, chunk: int | None) -> None:
    while room > 0:
        hungry = [take for take in takes if take.n < _want(take.slot, chunk)]
        if not hungry:
            return
        for index, take in enumerate(hungry):
            extra = min(_want(take.slot, chunk) - take.n, _part(room, len(hungry) - index))
            take.n += extra
            room -= extra


def _part(room: int, sharers: int) -> int:
    return -(-room // sharers)


def _want(slot: Slot, chunk: int | None) -> int:
    left = slot.left
    return left if chunk is None or slot.atomic else min(left, chunk)
