"""When a slot had work and got no token, and who had the batches meanwhile. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from scheduler_api.history.chunks import end_of
from scheduler_api.history.tally import Json, Roster

MOST_ITERATIONS = 200
ARRIVED = "arrived during a batch"
NO_BATCH = "no batch ran"
HELD = "held"
#: The sentences of `skipped` begin with these; what follows names slots and numbers.
KINDS = (
    *("batch full", "prefill chunk full", "group mismatch", "held", "queued", "paused", "decode share", "needs", "parent task"),
    *("continuous batching is off", "not in a batch yet"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Slot `slot` had the task `task` from `start` to `end` and got no token. `open`: that still lasts, as far as is known."""

    slot: int
    task: Json
    start: float
    end: float
    open: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.start


def kind_of(sentence: str) -> str:
    """What a skip sentence is about, without the slots and numbers in it."""
    plain = sentence.removeprefix("waits: ")
    found = next((kind for kind in KINDS if plain.startswith(kind)), None)
    return found if found is not None else re.split(r"[:,(]|\d", plain, maxsplit=1)[0].strip() or "no reason told"


def serves(iteration: Json, slot: int) -> bool:
    return any(each == slot for each, _ in iteration["prompt"]) or any(each == slot for each, _ in iteration["gen"])


def stretches(iterations: Iterable[Json], tasks: Iterable[Json], slot: int, until: float) -> list[Stretch]:
    """All stretches of a slot, in order. `tasks`: ended ones, and running ones with `finished_at` null. `until`: where the record
    ends."""
    iterations = list(iterations)
    mine = [(task, began) for task, began in beginnings(iterations, tasks) if task["slot"] == slot]
    batches = [(each["t"], end_of(each)) for each in iterations if serves(each, slot)]
    found: list[Stretch] = []
    first = 0
    for task, began in mine:
        at, end = began, task["finished_at"] if task["finished_at"] is not None else until
        while first < len(batches) and batches[first][1] <= at:
            first += 1
        for start, stop in islice(batches, first, None):
            if start >= end:
                break
            if start > at:
                found.append(Stretch(slot, task, at, start))
            at = max(at, stop)
        if end > at and (task["finished_at"] is None or task["reason"] in ("cancelled", "error")):
            found.append(Stretch(slot, task, at, end, open=task["finished_at"] is None))
    return found


def beginnings(iterations: Iterable[Json], tasks: Iterable[Json]) -> list[tuple[Json, float]]:
    """Tasks in slots, in the order in which they got them, and from when on each could have been served there.

    That is its submission, or the end of the slot's task before it, if that was later. An engine hands out slots between two
    batches only, so the time at which a task was given its slot says less; it decides where the task before is not known.
    """
    starts = [each["t"] for each in iterations]
    freed: dict[int, float] = {}
    found = []
    for task in sorted((task for task in tasks if task["slot"] >= 0), key=_given):
        slot, submitted, given = task["slot"], task["submitted_at"], _given(task)
        queued = bisect_left(starts, given) - bisect_right(starts, submitted) > 0  # a whole batch went by
        before = freed.get(slot, given if queued else submitted)
        found.append((task, float(max(submitted, before))))
        freed[slot] = max(before, math.inf if task["finished_at"] is None else task["finished_at"])
    return found


def _given(task: Json) -> float:
    return float(task["assigned_at"] if task["assigned_at"] is not None else task["submitted_at"])


def longest(found: Iterable[Stretch], t_from: float, t_to: float) -> Stretch | None:
    """The one that covers most of t_from..t_to, the longer one of two that cover as much; None when none touches it."""

    def covers(stretch: Stretch) -> float:
        return min(stretch.end, t_to) - max(stretch.start, t_from)

    touching = [stretch for stretch in found if covers(stretch) > 0]
    return max(touching, key=lambda stretch: (covers(stretch), stretch.seconds), default=None)


@dataclass(slots=True)
class _Blocker:
    slot: int
    client: str
    task: int | None
    iterations: int = 0
    tokens: int = 0
    seconds: float = 0.0


def blockers(iterations: Iterable[Json], roster: Roster, slot: int, start: float, end: float) -> list[Json]:
    """Who was in the batches that ran from `start` to `end` without `slot`, the longest time first.

    A batch's time within the stretch is parted by tokens among those in it; `share` is of the whole stretch, so what the shares
    leave of 1 is time in which no batch ran.
    """
    found: dict[tuple[int, int | None], _Blocker] = {}
    for iteration in iterations:
        overlap = min(end_of(iteration), end) - max(iteration["t"], start)
        pairs = [*iteration["prompt"], *iteration["gen"]]
        every = sum(n for _, n in pairs)
        if overlap <= 0 or not every or serves(iteration, slot):
            continue
        seen = set()
        for other, n in pairs:
            stay = roster.who(other, iteration["i"])
            task = None if stay is None else stay.task
            blocker = found.setdefault((other, task), _Blocker(other, "" if stay is None else stay.client, task))
            blocker.iterations += (other, task) not in seen
            blocker.tokens += n
            blocker.seconds += overlap * n / every
            seen.add((other, task))
    ranked = sorted(found.values(), key=lambda each: (-each.seconds, each.slot))
    return [
        {
            "slot": each.slot,
            "client": each.client,
            "task": each.task,
            "iterations": each.iterations,
            "tokens": each.tokens,
            "seconds": round(each.seconds, 4),
            "share": round(each.seconds / (end - start), 4),
        }
        for each in ranked
    ]


def reason(iterations: Iterable[Json], slot: int, start: float, end: float) -> tuple[str, str]:
    """The kind of sentence that told most often why the slot was skipped, and the most frequent sentence of that kind."""
    sentences: Counter[str] = Counter()
    arrived = False
    for iteration in iterations:
        if end_of(iteration) <= start or iteration["t"] >= end or serves(iteration, slot):
            continue
        told = [why for other, why in iteration.get("skipped", ()) if other == slot]
        if told:
            sentences[told[0]] += 1
        elif slot in iteration.get("held", ()):
            sentences[HELD] += 1
        else:
            arrived = arrived or iteration["t"] < start
    if not sentences:
        return (ARRIVED, "") if arrived else (NO_BATCH, "")
    kinds: Counter[str] = Counter()
    for sentence, n in sentences.items():
        kinds[kind_of(sentence)] += n
    most = kinds.most_common(1)[0][0]
    return most, next(sentence for sentence, _ in sentences.most_common() if kind_of(sentence) == most)


def numbers(iterations: Sequence[Json], slot: int, start: float, end: float) -> list[int]:
    """The iterations that ran meanwhile without the slot, at most MOST_ITERATIONS: the first ones and the last ones."""
    found = [each["i"] for each in iterations if end_of(each) > start and each["t"] < end and not serves(each, slot)]
    half = MOST_ITERATIONS // 2
    return found if len(found) <= MOST_ITERATIONS else [*found[:half], *found[-half:]]
