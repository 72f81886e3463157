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
    """`n` prompt tokens of a slot for this batch, of the `want` that it could use."""

    slot: Slot
    n: int
    want: int


@dataclass(slots=True)
class Division:
    """Who gets what, in visiting order, and who gets nothing for which cause."""

    takes: list[Take] = field(default_factory=list)
    full: list[Slot] = field(default_factory=list)  # no room in the batch was left for them
    later: list[Slot] = field(default_factory=list)  # the batch had room, the chunk had not
    mismatched: list[Slot] = field(default_factory=list)
    too_big: list[tuple[Slot, int]] = field(default_factory=list)  # atomic, and the room that was left for it


def divide(
    order: Sequence[Slot],
    room: int,
    group: Group | None,
    *,
    chunk: int | None,
    equal: bool,
    stops: tuple[int, ...] = (),
) -> Division:
    """Divides `room` tokens, or the smaller `chunk`, among the slots of one group: the given one, else that of the first slot
    that takes any.

    Greedy: each slot in turn takes all it can use. Equal: each takes an equal part of what is left, and what the later ones
    leave goes back to those that can use more, so no room is wasted while somebody has work. An atomic prompt is not cut: it
    may exceed the chunk, never the room. `stops`: see `SchedulerConfig.prompt_stops`.
    """
    division = Division()
    fitting: list[Slot] = []
    for slot in order:
        if group is None and not (slot.atomic and slot.left > room):
            group = slot.group
        if group is None or slot.group is group:
            fitting.append(slot)
        else:
            division.mismatched.append(slot)
    budget = room if chunk is None or chunk > room else chunk
    _deal(fitting, budget, room - budget, division, equal=equal, stops=stops)
    return division


def _deal(
    order: Sequence[Slot],
    room: int,
    beyond: int,
    division: Division,
    *,
    equal: bool,
    stops: tuple[int, ...],
) -> None:
    """`room` is what prompts may use, `beyond` what only an atomic one may use when the room is not enough for it."""
    hungry: list[Take] = []
    takes = division.takes
    sharers = len(order)
    for slot in order:
        left = slot.left
        if room <= 0:
            (division.later if beyond > 0 else division.full).append(slot)
            continue
        if slot.atomic and left > room + beyond:
            division.too_big.append((slot, room + beyond))
        elif slot.atomic:
            takes.append(Take(slot, left, left))
            beyond -= max(0, left - room)
            room = max(0, room - left)
        else:
            if stops:
                left = _to_stop(left, stops)
            most = -(-room // sharers) if equal else room
            take = Take(slot, left if left < most else most, left)
            room -= take.n
            takes.append(take)
            if take.n < left:
                hungry.append(take)
        sharers -= 1
    _give_back(hungry, room)


def _to_stop(left: int, stops: tuple[int, ...]) -> int:
    return left - max((stop for stop in stops if stop < left), default=0)


def _give_back(hungry: list[Take], room: int) -> None:
    while room > 0 and hungry:
        for index, take in enumerate(hungry):
            extra = min(take.want - take.n, -(-room // (len(hungry) - index)))
            take.n += extra
            room -= extra
        hungry = [take for take in hungry if take.n < take.want]
