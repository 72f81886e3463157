"""How evenly a server's slots and clients were served over a stretch of time. Pure; docs/metrics.md defines every figure.

`of` makes the object that frames and the API carry from a tally; `fairness` makes it from iterations and tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler_api.history import histogram
from scheduler_api.history.tally import OTHERS, Json, Roster, Tally, Tracker, Worst, place

TOP_CLIENTS = 12
#: A slot in one of these states is in the batch that runs now, or was in the last one.
_RUNNING = frozenset({"prompt", "generating"})


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index: (sum x)^2 / (n * sum x^2). 1 where all have the same, 1/n where one has all; None of none."""
    squares = sum(x * x for x in shares)
    return None if not shares or squares <= 0 else sum(shares) ** 2 / (len(shares) * squares)


def percentile(values: Sequence[float], q: float) -> float | None:
    """Linear interpolation between order statistics at q·(n − 1); None of none."""
    if not values:
        return None
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(slots=True)
class Count:
    """Counts a range piece by piece: iterations with the tasks that ended among them and the slots as they stand after them."""

    t_from: float
    t_to: float
    tally: Tally = field(default_factory=Tally)
    tracker: Tracker = field(default_factory=Tracker)
    tasks: dict[tuple[Any, ...], Json] = field(default_factory=dict)
    freed: dict[int, float] = field(default_factory=dict)
    covering: set[int] = field(default_factory=set)
    last: tuple[int, int] = (0, -1)

    def piece(self, iterations: Iterable[Json], tasks: Sequence[Json], slots: Iterable[Json]) -> None:
        """What was told before counts once."""
        roster = Roster(tasks, slots, self.freed)
        self.freed = roster.freed
        for iteration in iterations:
            at = place(iteration)
            if self.t_from <= iteration["t"] < self.t_to and at > self.last:
                self.last = at
                self.tracker.follow(self.tally, iteration, roster, self.t_from)
                if self.tracker.horizon > self.t_to:
                    self.covering |= {slot for slot, _ in (*iteration["prompt"], *iteration["gen"])}
        for task in tasks:
            key = task["task"], task["slot"], task["finished_at"]
            if key not in self.tasks and task["finished_at"] >= self.t_from:
                self.tasks[key] = task
                if task["finished_at"] < self.t_to:
                    self.tally.ended(task)

    def object(self, slots: Sequence[Json]) -> Json:
        """`slots`: those of a state, as they stand at the end of the range or later."""
        t_from, t_to, tasks = self.t_from, self.t_to, list(self.tasks.values())
        waits = open_waits(self.tracker, _open_at(tasks, slots, t_to), t_from, t_to, self.covering)
        ttft = ttfts(task for task in tasks if task["finished_at"] < t_to)
        return of(self.tally, t_from, t_to, busy_seconds(tasks, slots, t_from, t_to), waits, ttft)


def fairness(iterations: Iterable[Json], tasks: Sequence[Json], slots: Sequence[Json], t_from: float, t_to: float) -> Json:
    """The object over t_from..t_to. `tasks`: those that ended in it or later; `slots`: those of a state, as they stand at its end
    or later."""
    count = Count(t_from, t_to)
    count.piece(iterations, tasks, slots)
    return count.object(slots)


def ttfts(tasks: Iterable[Json]) -> list[float]:
    return [max(0.0, task["first_token_at"] - task["submitted_at"]) for task in tasks if task["first_token_at"] is not None]


def _first(*times: Any) -> Any:
    """The first time that is known."""
    return next((t for t in times if t is not None), None)


def _open_at(tasks: Iterable[Json], slots: Iterable[Json], t: float) -> Roster:
    """The roster whose present stays are those at `t`."""
    ended, later = [], []
    for task in tasks:
        if task["slot"] < 0 or task["finished_at"] <= t:
            ended.append(task)
        elif _first(task["assigned_at"], task["submitted_at"]) <= t:
            later.append({**task, "id": task["slot"], "state": "waiting", "since": task["assigned_at"]})
    taken = {each["id"] for each in later}
    now = [slot for slot in slots if slot["id"] not in taken and (slot["submitted_at"] is None or slot["submitted_at"] <= t)]
    return Roster(ended, [*later, *now])


def open_waits(tracker: Tracker, roster: Roster, t_from: float, t_to: float, running: Iterable[int]) -> list[Worst]:
    """For how long each slot with work has got no token at `t_to`; none of those that a batch serves just then."""
    served = set(running)
    found = [
        Worst(t_to - max(tracker.waits_since(slot, stay), t_from), slot)
        for slot, stay in roster.present.items()
        if slot not in served
    ]
    return [wait for wait in found if wait.seconds > 0]


def busy_seconds(tasks: Iterable[Json], slots: Iterable[Json], t_from: float, t_to: float) -> dict[int, float]:
    """For how long each slot had a task within t_from..t_to."""
    found: dict[int, float] = {}
    freed: dict[int, float] = {}

    def stayed(slot: int, start: float, end: float) -> None:
        seconds = min(end, t_to) - max(start, t_from)
        if seconds > 0:
            found[slot] = found.get(slot, 0.0) + seconds

    for task in tasks:
        if task["slot"] >= 0:
            stayed(task["slot"], _first(task["assigned_at"], task["submitted_at"]), task["finished_at"])
            freed[task["slot"]] = max(task["finished_at"], freed.get(task["slot"], 0.0))
    for slot in slots:
        if slot["state"] != "idle" and (begun := _first(slot["submitted_at"], slot["since"])) is not None:
            stayed(slot["id"], max(begun, freed.get(slot["id"], 0.0)), t_to)
    return found


def of(
    tally: Tally,
    t_from: float,
    t_to: float,
    busy: Mapping[int, float],
    waits: Iterable[Worst],
    ttft: Sequence[float] | None = None,
    *,
    batches: bool = True,
) -> Json:
    """`waits`: those that still last. `ttft`: the times themselves, else the tally's counts.

    `batches`: the server tells of batches and tasks; what follows from them alone is null otherwise.
    """
    open_waits = list(waits)
    gap = tally.worst_gap
    for wait in open_waits:
        gap = gap.or_longer(wait)
    oldest = max(open_waits, key=lambda wait: wait.seconds, default=Worst())
    slots = _slots(tally, busy)
    clients = _clients(tally) if batches else []
    shares = [slot["prompt_tokens"] + slot["gen_tokens"] for slot in slots]
    known: dict[str, Any] = {
        "jain_clients": _round(jain([n for name, n in tally.clients.items() if name != OTHERS]), 4),
        "max_service_gap_s": _round(gap.seconds),
        "max_service_gap_slot": gap.slot,
        "oldest_wait_s": _round(oldest.seconds),
        "oldest_wait_slot": oldest.slot,
        "stalls": tally.stalls + sum(wait.seconds > 1.0 for wait in open_waits),
        "worst_itl_s": _round(tally.worst_itl.seconds) if tally.worst_itl.slot is not None else None,
        "worst_itl_slot": tally.worst_itl.slot,
        "cache_hit": _round(tally.cached_tokens / tally.prompt_tokens, 4) if tally.prompt_tokens else None,
    }
    return {
        "from": round(t_from, 3),
        "to": round(t_to, 3),
        "slots": slots,
        "clients": clients,
        "jain_slots": _round(jain(shares), 4),
        **(known if batches else dict.fromkeys(known)),
        "ttft": exact(ttft) if ttft is not None else spread(tally.ttft),
        "itl": spread(tally.itl),
    }


def _slots(tally: Tally, busy: Mapping[int, float]) -> list[Json]:
    """Those that had work or got tokens, in order; tokens of a slot that is not known (below 0) count in no one's share."""
    every = sum(prompt + generated for prompt, generated in tally.slots.values()) or 1
    return [
        {
            "slot": slot,
            "prompt_tokens": tokens[0],
            "gen_tokens": tokens[1],
            "busy_s": round(busy.get(slot, 0.0), 3),
            "share": round(sum(tokens) / every, 4),
        }
        for slot in sorted(tally.slots.keys() | busy.keys())
        if slot >= 0
        for tokens in [tally.slots.get(slot, [0, 0])]
    ]


def _clients(tally: Tally) -> list[Json]:
    every = sum(tally.clients.values()) or 1
    names = tally.clients.keys() | tally.client_tasks.keys()
    ranked = sorted(names - {OTHERS}, key=lambda name: (-tally.clients.get(name, 0), name))
    top, rest = ranked[:TOP_CLIENTS], [*ranked[TOP_CLIENTS:], *(names & {OTHERS})]
    told = [_client(name, tally, [name], every) for name in top]
    return [*told, _client("others", tally, rest, every) | {"others": len(rest)}] if rest else told


def _client(shown: str, tally: Tally, names: Iterable[str], every: int) -> Json:
    members = list(names)
    tokens = sum(tally.clients.get(name, 0) for name in members)
    tasks = sum(tally.client_tasks.get(name, 0) for name in members)
    return {"client": shown, "tokens": tokens, "share": round(tokens / every, 4), "tasks": tasks}


def exact(values: Sequence[float]) -> Json:
    found = {f"p{q}": _round(percentile(values, q / 100)) for q in (50, 95, 99)}
    return {**found, "n": len(values)}


def spread(counts: Mapping[int, int]) -> Json:
    """Percentiles from counts."""
    found = {f"p{q}": _round(histogram.percentile(counts, q / 100)) for q in (50, 95, 99)}
    return {**found, "n": sum(counts.values())}


def _round(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)
