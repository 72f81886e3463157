"""What a rule would have opened in a recorded past: exactly as far as the detail tells, and as a bound from the rollups. Pure.

Tokens of a batch count at its end, as they do for one who watches. Merged batches count at both of their ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from scheduler_api.alerts.kinds import Kind, Spec
from scheduler_api.alerts.progress import owner_of
from scheduler_api.health import NOT_SERVING_AFTER_S
from scheduler_api.history.chunks import end_of
from scheduler_api.history.stalls import beginnings

type Json = dict[str, Any]
type Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Record:
    """What the detail has of one server in `start`..`end`. `gaps`: [from, to, why nothing is known]. `cap_s`: the policy's hold
    cap at a time, None without one. `batches`: the server tells of its batches."""

    start: float
    end: float
    iterations: Sequence[Json] = ()
    tasks: Sequence[Json] = ()
    gaps: Sequence[Sequence[Any]] = ()
    cap_s: Callable[[float], float | None] = lambda t: None
    batches: bool = True


@dataclass(slots=True)
class _Work:
    """One task in a slot."""

    start: float
    end: float
    slot: int
    owner: str
    task: Json
    moments: list[float] = field(default_factory=list)


def episodes(spans: Iterable[Span], for_s: float, clear_s: float) -> list[Span]:
    """From when to when an alert would have been open (to the moment from which on nothing was found): spans shorter than `for_s`
    open none, pauses shorter than `clear_s` close none."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] < clear_s:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end - start >= for_s:
            found.append((start, end))
    return found


def opened(rule: Spec, record: Record) -> list[Span] | None:
    """Each alert that the rule would have opened; None where the record does not tell."""
    by_key = _SPANS[rule.kind](record, rule.threshold_s)
    if by_key is None:
        return None
    return sorted(each for spans in by_key.values() for each in episodes(spans, rule.for_s, rule.clear_s))


def _works(record: Record) -> list[_Work]:
    """Tasks in slots, with the moments at which each got tokens."""
    works: dict[int, list[_Work]] = {}
    for task, began in beginnings(record.iterations, record.tasks):
        end = task["finished_at"] if task["finished_at"] is not None else record.end
        if end > began:
            owner = owner_of(task["slot"], task.get("client") or "")
            works.setdefault(task["slot"], []).append(_Work(began, end, task["slot"], owner, task))
    starts = {slot: [work.start for work in each] for slot, each in works.items()}
    for iteration in record.iterations:
        end = end_of(iteration)
        for slot in {each[0] for each in (*iteration["prompt"], *iteration["gen"])}:
            at = bisect_right(starts.get(slot, []), end) - 1
            if at >= 0 and works[slot][at].end >= iteration["t"]:
                works[slot][at].moments += [iteration["t"], end] if iteration.get("merged", 1) > 1 else [end]
    return sorted((work for each in works.values() for work in each), key=lambda work: work.start)


def _pauses(moments: Iterable[float], start: float, end: float) -> list[Span]:
    inside = [moment for moment in sorted(moments) if start < moment < end]
    edges = [start, *inside, end]
    return [(before, after) for before, after in pairwise(edges) if after > before]


def _held(work: _Work, end: float) -> Span | None:
    """From the end of its prompt to its first token."""
    task = work.task
    done, first = task.get("prompt_done_at"), task.get("first_token_at")
    if done is None:
        return None
    until = first if first is not None else work.end
    return (done, until) if until > done else None


def _starving(record: Record, limit_s: float) -> dict[str, list[Span]] | None:
    if not record.batches:
        return None
    works = _works(record)
    served = sorted((moment, work.owner) for work in works for moment in work.moments)
    moments = [moment for moment, _ in served]
    owners: dict[str, list[_Work]] = {}
    for work in works:
        owners.setdefault(work.owner, []).append(work)
    found: dict[str, list[Span]] = {}
    for owner, mine in owners.items():
        own = [moment for work in mine for moment in work.moments]
        for start, end in _stretches(mine):
            for pause in _pauses([*own, *_held_edges(mine)], start, end):
                if pause[1] - pause[0] > limit_s and not _in_hold(pause, mine):
                    at = _other_after(served, moments, owner, pause[0] + limit_s)
                    if at is not None and at < pause[1]:
                        found.setdefault(owner, []).append((at, pause[1]))
    return found


def _stretches(works: Sequence[_Work]) -> list[Span]:
    """The times in which there was work, as few as there are."""
    found: list[Span] = []
    for work in works:
        if found and work.start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], work.end))
        else:
            found.append((work.start, work.end))
    return found


def _held_edges(works: Iterable[_Work]) -> list[float]:
    return [edge for work in works if (held := _held(work, work.end)) is not None for edge in held]


def _in_hold(pause: Span, works: Iterable[_Work]) -> bool:
    """Whether all of its work that was there was held."""
    middle = (pause[0] + pause[1]) / 2
    there = [work for work in works if work.start <= middle < work.end]
    return all((held := _held(work, work.end)) is not None and held[0] <= middle < held[1] for work in there)


def _other_after(served: Sequence[tuple[float, str]], moments: Sequence[float], owner: str, t: float) -> float | None:
    for at in range(bisect_right(moments, t), len(served)):
        if served[at][1] != owner:
            return served[at][0]
    return None


def _stuck(record: Record, limit_s: float) -> dict[str, list[Span]] | None:
    """A slot that stands while no other moves either: where others move, it waits."""
    if not record.batches:
        return None
    works = _works(record)
    every = sorted(moment for work in works for moment in work.moments)
    found: dict[str, list[Span]] = {}
    for work in works:
        for start, end in _pauses(work.moments, work.start, work.end):
            at = bisect_right(every, start)
            alone = at >= len(every) or every[at] >= end
            if end - start > limit_s and alone and not _in_hold((start, end), [work]):
                found.setdefault(f"slot {work.slot}", []).append((start + limit_s, end))
    return found


def _not_serving(record: Record, _: float) -> dict[str, list[Span]] | None:
    if not record.batches:
        return None
    works = _works(record)
    every = [moment for work in works for moment in work.moments]
    pauses = [pause for start, end in _stretches(works) for pause in _pauses(every, start, end)]
    return {"": [(start + NOT_SERVING_AFTER_S, end) for start, end in pauses if end - start > NOT_SERVING_AFTER_S]}


def _queue_age(record: Record, limit_s: float) -> dict[str, list[Span]] | None:
    spans = []
    for task in record.tasks:
        left = task.get("assigned_at") if task.get("assigned_at") is not None else task["finished_at"]
        if left is not None and left - task["submitted_at"] > limit_s:
            spans.append((task["submitted_at"] + limit_s, left))
    return {"": _union(spans)} if record.batches else None


def _cohort_hold(record: Record, limit_s: float) -> dict[str, list[Span]] | None:
    if not record.batches:
        return None
    spans = []
    for work in _works(record):
        held = _held(work, record.end)
        if held is not None:
            cap = record.cap_s(held[0])
            limit = cap if cap is not None else limit_s
            if held[1] - held[0] > limit:
                spans.append((held[0] + limit, held[1]))
    return {"": _union(spans)}


def _union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _gaps(begins: str, threshold: Callable[[float], float]) -> Callable[[Record, float], dict[str, list[Span]] | None]:
    def look(record: Record, limit_s: float) -> dict[str, list[Span]]:
        told = [(gap[0] + threshold(limit_s), gap[1]) for gap in record.gaps if str(gap[2]).startswith(begins)]
        return {"": [span for span in told if span[1] > span[0]]}

    return look


def _down(record: Record, silence_s: float) -> dict[str, list[Span]]:
    down = _gaps("Down", lambda limit: 0.0)(record, silence_s)
    silent = _gaps("Busy, no answer", lambda limit: limit)(record, silence_s)
    return {"": _union([*(down or {}).get("", []), *(silent or {}).get("", [])])}


_SPANS: Mapping[Kind, Callable[[Record, float], dict[str, list[Span]] | None]] = {
    Kind.DOWN: _down,
    Kind.NOT_SERVING: _not_serving,
    Kind.STUCK_SLOT: _stuck,
    Kind.STARVING: _starving,
    Kind.QUEUE_AGE: _queue_age,
    Kind.COHORT_HOLD: _cohort_hold,
    Kind.OBSERVER_LOST: _gaps("no observer", lambda limit: limit),
}
