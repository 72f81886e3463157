"""Since when each slot and each client got no token, as seen from one state to the next. Pure; times are the console's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FORGET_S = 3600.0
#: States in which a slot claims to be computed, and so must move.
COMPUTED = frozenset({"prompt", "generating"})


@dataclass(slots=True)
class Seen:
    """A slot's present task. `since`: it last moved, or was first seen; `held_since`: None unless it is held."""

    task: int | None
    client: str
    counts: tuple[int, int]
    since: float
    pending_since: float
    state: str = ""
    held_since: float | None = None
    known: bool = True  # its server counts the tokens of the stage that it is in

    @property
    def owner_is_named(self) -> bool:
        return bool(self.client)


def owner_of(slot: int, client: str) -> str:
    return f"client {client}" if client else f"slot {slot}"


@dataclass(slots=True)
class Progress:
    slots: dict[int, Seen] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)  # by owner: when it last got a token
    adopted: dict[int, tuple[int | None, float]] = field(default_factory=dict)

    def adopt(self, slot: int, task: int | None, since: float) -> None:
        """What an earlier observer knew: a slot that is still at this task has not moved since then, until it does."""
        self.adopted[slot] = (task, since)

    def update(self, slots: Iterable[Mapping[str, Any]], now: float) -> None:
        found: dict[int, Seen] = {}
        for slot in slots:
            if slot["state"] != "idle":
                found[slot["id"]] = self._look(slot, self.slots.get(slot["id"]), now)
        self.slots = found
        self.adopted = {}
        self.served = {owner: at for owner, at in self.served.items() if now - at < FORGET_S}

    def forget(self) -> None:
        """The work that was there is gone."""
        self.slots, self.served = {}, {}

    def _look(self, slot: Mapping[str, Any], before: Seen | None, now: float) -> Seen:
        pk, task, client, state = slot["id"], slot.get("task"), slot.get("client") or "", slot["state"]
        processed, generated = slot.get("n_processed"), slot.get("n_generated")
        counts = (processed or 0, generated or 0)
        if before is None or before.task != task:
            seen = self._first(pk, task, client, counts, now)
        else:
            seen = before
            if counts != seen.counts or state == "held":
                seen.since = now
            if counts != seen.counts:
                self.served[owner_of(pk, client)] = now
        seen.counts, seen.state = counts, state
        seen.known = (generated if state == "generating" else processed) is not None
        if state == "held":
            seen.held_since = seen.held_since if seen.held_since is not None else now
            seen.pending_since = now
        else:
            seen.held_since = None
        return seen

    def _first(self, pk: int, task: int | None, client: str, counts: tuple[int, int], now: float) -> Seen:
        adopted = self.adopted.get(pk)
        if adopted is not None and adopted[0] == task:
            since = min(now, adopted[1])
            return Seen(task, client, counts, since, since, held_since=since)
        if any(counts):
            self.served[owner_of(pk, client)] = now
        return Seen(task, client, counts, now, now)

    def waiting(self) -> dict[str, tuple[float, int]]:
        """By owner with work in slots that is not held: since when it got nothing, and which of its slots waits longest."""
        found: dict[str, tuple[float, int]] = {}
        for pk, seen in self.slots.items():
            if seen.state == "held" or not seen.known:
                continue
            owner = owner_of(pk, seen.client)
            if owner not in found or seen.pending_since < found[owner][0]:
                found[owner] = (seen.pending_since, pk)
        return {owner: (max(since, self.served.get(owner, since)), pk) for owner, (since, pk) in found.items()}

    def others_served_at(self, owner: str) -> float | None:
        """When any other got a token last."""
        return max((at for other, at in self.served.items() if other != owner), default=None)
