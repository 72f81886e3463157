"""Sums over a stretch of time, of what batches and ended tasks tell: they can be added to those of the next stretch. Pure.

A batch counts in the stretch in which it began; a task in the one in which it ended; a gap in the one in which it ended.
All times are the server's clock, Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_api.history import histogram
from scheduler_api.history.histogram import Counts

type Json = dict[str, Any]

#: A gap longer than this is counted as a stall.
STALL_S = 1.0
#: Clients told apart in one tally; what more there are is summed up under OTHERS.
MOST_CLIENTS = 200
OTHERS = "\0others"


@dataclass(frozen=True, slots=True)
class Worst:
    """The longest of some durations, and whose it was; slot None where there was none."""

    seconds: float = 0.0
    slot: int | None = None

    def or_longer(self, other: Worst) -> Worst:
        return other if other.slot is not None and (self.slot is None or other.seconds > self.seconds) else self


@dataclass(slots=True)
class Tally:
    iterations: int = 0
    batch_s: float = 0.0
    slots: dict[int, list[int]] = field(default_factory=dict)  # prompt and generated tokens
    clients: dict[str, int] = field(default_factory=dict)  # tokens of both kinds
    itl: Counts = field(default_factory=dict)
    worst_itl: Worst = field(default_factory=Worst)
    worst_gap: Worst = field(default_factory=Worst)
    stalls: int = 0
    ttft: Counts = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    client_tasks: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0  # of the prompts of ended tasks, those from the cache included
    cached_tokens: int = 0

    def served(self, slot: int, prompt: int, generated: int, client: str | None) -> None:
        """`client` None: unknown."""
        tokens = self.slots.setdefault(slot, [0, 0])
        tokens[0] += prompt
        tokens[1] += generated
        if client is not None:
            _bump(self.clients, client, prompt + generated)

    def gap(self, slot: int, seconds: float) -> None:
        if seconds > self.worst_gap.seconds or self.worst_gap.slot is None:
            self.worst_gap = Worst(seconds, slot)
        self.stalls += seconds > STALL_S

    def token_gap(self, slot: int, seconds: float) -> None:
        histogram.count(self.itl, seconds)
        if seconds > self.worst_itl.seconds or self.worst_itl.slot is None:
            self.worst_itl = Worst(seconds, slot)

    def ended(self, task: Json) -> None:
        """A task as the engine tells of it when it ends."""
        _bump(self.reasons, task["reason"], 1)
        _bump(self.client_tasks, task["client"], 1)
        if task["first_visit_at"] is not None:
            self.prompt_tokens += task["n_prompt"] or 0
            self.cached_tokens += task["n_cached"] or 0
        if task["first_token_at"] is not None:
            histogram.count(self.ttft, max(0.0, task["first_token_at"] - task["submitted_at"]))

    def add(self, other: Tally) -> None:
        self.iterations += other.iterations
        self.batch_s += other.batch_s
        for slot, (prompt, generated) in other.slots.items():
            self.served(slot, prompt, generated, None)
        for name in ("clients", "reasons", "client_tasks"):
            for key, n in getattr(other, name).items():
                _bump(getattr(self, name), key, n)
        histogram.add(self.itl, other.itl)
        histogram.add(self.ttft, other.ttft)
        self.worst_itl = self.worst_itl.or_longer(other.worst_itl)
        self.worst_gap = self.worst_gap.or_longer(other.worst_gap)
        self.stalls += other.stalls
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens


def _bump(counts: dict[str, int], key: str, n: int) -> None:
    if key not in counts and len(counts) >= MOST_CLIENTS:
        key = OTHERS
    counts[key] = counts.get(key, 0) + n


def total(tallies: Iterable[Tally]) -> Tally:
    found = Tally()
    for tally in tallies:
        found.add(tally)
    return found


def place(iteration: Json) -> tuple[int, int]:
    """Where an iteration stands among all of a server, also over restarts: start in microseconds, as in chunks, and number."""
    return round(iteration["t"] * 1e6), iteration["i"]


@dataclass(frozen=True, slots=True)
class Stay:
    """A task in its slot. `since`: when its wait for a batch began: its submission, or the end of the slot's task before it."""

    task: int | None
    client: str
    since: float


class Roster:
    """Who had which slot at which iteration, from tasks that ended and the slots as they stand after the iterations.

    `freed`: when each slot's last task ended, where the slots' present ones do not tell when they got theirs.
    """

    def __init__(self, ended: Iterable[Json], slots: Iterable[Json], freed: Mapping[int, float] | None = None) -> None:
        self._ended: dict[int, list[tuple[int, Stay]]] = {}
        self._freed = dict(freed or {})
        for task in sorted((task for task in ended if task["slot"] >= 0), key=lambda task: (task["i"], task["n"])):
            slot = task["slot"]
            if task["first_visit_at"] is not None:
                given = task["assigned_at"] if task["assigned_at"] is not None else task["submitted_at"]
                since = max(task["submitted_at"], self._freed.get(slot, given))
                self._ended.setdefault(slot, []).append((task["i"], Stay(task["task"], task["client"], since)))
            self._freed[slot] = max(task["finished_at"], self._freed.get(slot, task["finished_at"]))
        self._now = {slot["id"]: self._present(slot) for slot in slots if slot["state"] != "idle"}

    def _present(self, slot: Json) -> Stay:
        begun = slot["submitted_at"] if slot["submitted_at"] is not None else slot["since"]
        since = max(begun or 0.0, self._freed.get(slot["id"], 0.0))
        return Stay(slot["task"], slot["client"], since)

    @property
    def freed(self) -> dict[int, float]:
        return self._freed

    @property
    def present(self) -> dict[int, Stay]:
        """The stays that go on."""
        return self._now

    def who(self, slot: int, iteration: int) -> Stay | None:
        for last, stay in self._ended.get(slot, ()):
            if iteration <= last:
                return stay
        return self._now.get(slot)


@dataclass(slots=True)
class Tracker:
    """Follows iterations in their order, over any number of tallies: it remembers when each slot was served last."""

    last_end: dict[int, tuple[int | None, float]] = field(default_factory=dict)  # slot: task, end of the batch that served it
    last_token: dict[int, tuple[int | None, float]] = field(default_factory=dict)
    horizon: float = 0.0

    def forget(self) -> None:
        """After a restart, or where batches were missed: no gap reaches over it."""
        self.last_end.clear()
        self.last_token.clear()

    def follow(self, tally: Tally, iteration: Json, roster: Roster, since: float = 0.0) -> None:
        """`since`: no gap is counted from before it."""
        start, i = iteration["t"], iteration["i"]
        took = ((iteration["plan_ms"] or 0.0) + (iteration["run_ms"] or 0.0)) / 1000
        end = start + took
        tally.iterations += 1
        tally.batch_s += took
        for slot, n in iteration["prompt"]:
            stay = roster.who(slot, i)
            self._serve(tally, slot, stay, start, end, since)
            tally.served(slot, n, 0, None if stay is None else stay.client)
        for slot, n in iteration["gen"]:
            stay = roster.who(slot, i)
            task = None if stay is None else stay.task
            self._serve(tally, slot, stay, start, end, since)
            tally.served(slot, 0, n, None if stay is None else stay.client)
            before = self.last_token.get(slot)
            if before is not None and before[0] == task:
                tally.token_gap(slot, max(0.0, end - before[1]))
            self.last_token[slot] = (task, end)
        self.horizon = max(self.horizon, end)

    def _serve(self, tally: Tally, slot: int, stay: Stay | None, start: float, end: float, since: float) -> None:
        if stay is not None:
            gap = start - max(self.waits_since(slot, stay), since)
            if gap > 0:
                tally.gap(slot, gap)
        self.last_end[slot] = (None if stay is None else stay.task, end)

    def waits_since(self, slot: int, stay: Stay) -> float:
        before = self.last_end.get(slot)
        return max(stay.since, before[1]) if before is not None and before[0] == stay.task else stay.since
