"""A stall as a replay needs it: who was there when it began, how far, who came later, and what a batch costs. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler_api.history.chunks import end_of
from scheduler_api.history.costs import Costs, Load, depth_of, fit
from scheduler_api.history.stalls import Stretch, beginnings
from scheduler_api.history.tally import Json

#: Tokens that a running task may still generate, where it does not say.
_UNKNOWN_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class Work:
    """A task as it stood when the stretch began. `left`: prompt tokens, behind `before` others; 0 of one whose prompt was done.

    `held`: a barrier kept its first token back. `slot` -1: any.
    """

    id: int
    slot: int
    left: int
    before: int
    generate: int
    at: float
    group: str
    client: str
    held: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A stall as the replay needs it: when the batch that ran at its beginning ended, who was there, who came."""

    stretch: Stretch
    begins: float
    present: list[Work]
    arrivals: list[Work]
    cursor: int | None
    policy: Json
    info: Json
    costs: Costs


def scene(iterations: Sequence[Json], tasks: Sequence[Json], stretch: Stretch, policy: Json | None, info: Json) -> Scene | str:
    """What is needed of the record, else why it is not there. `iterations` in order, none merged."""
    if policy is None or not info.get("n_batch"):
        return "This server's policy or batch size is not known."
    if any("merged" in each for each in iterations):
        return "The range holds too many iterations to replay."
    began = beginnings(iterations, tasks)
    costs = fit(_batches(iterations, began))
    if costs is None:
        return "No batch was recorded."
    before = [each for each in iterations if each["t"] <= stretch.start]
    begins = max([stretch.start, *(end_of(each) for each in before[-1:])])
    computed = _computed(before)
    later = _computed([each for each in iterations if each["t"] > stretch.start])
    holding = next((each.get("phase") for each in iterations if each["t"] > stretch.start), None) == "pp"
    pinned = _was_pinned(iterations, began, info.get("n_slots") or 0)
    present, arrivals = [], []
    for task, since in began:
        if task["finished_at"] is not None and task["finished_at"] <= begins:
            continue
        if since <= begins:
            standing = _standing(task, since, computed, later)
            present.append(replace(standing, held=True) if holding and not standing.left else standing)
        elif task["submitted_at"] < stretch.end:
            slot = task["slot"] if pinned(task, since) else -1
            arrivals.append(_work(task, slot, _asked(task), task["n_generated"], task["submitted_at"]))
    arrivals.sort(key=lambda work: work.at)
    present.sort(key=lambda work: (work.at, work.slot))
    return Scene(stretch, begins, present, arrivals, _cursor(before, policy), policy, info, costs)


def _was_pinned(iterations: Sequence[Json], began: Sequence[tuple[Json, float]], n_slots: int) -> Callable[[Json, float], bool]:
    """Whether a task was to go to the slot that it got: it came when that was free, or waited for it while another was idle."""
    starts = sorted(since for _, since in began)
    ends = sorted(task["finished_at"] for task, _ in began if task["finished_at"] is not None)
    batches = [each["t"] for each in iterations]

    def told(task: Json, since: float) -> bool:
        first = batches[bisect_left(batches, task["submitted_at"])] if batches and batches[-1] >= task["submitted_at"] else since
        idle_then = bisect_right(starts, first) - bisect_right(ends, first) < n_slots
        idle_before = bisect_left(starts, since) - bisect_left(ends, since) < n_slots
        return since == task["submitted_at"] or idle_then or idle_before

    return told


def _cursor(before: Sequence[Json], policy: Json) -> int | None:
    """Where a rotating pass goes on from. Physical order leaves no cursor: there it is whom a pass would have left."""
    if policy.get("prefill_order") != "physical":
        return before[-1]["cursor"] if before else None
    last = next((each["prompt"] for each in reversed(before) if each["prompt"]), None)
    if last is None:
        return None
    return int(last[-1 if policy.get("rotation_start") == "after_last" else 0][0])


def _asked(task: Json) -> int:
    """Prompt tokens to compute: a prompt that is cached as a whole computes its last one."""
    return max(1, (task["n_prompt"] or 0) - (task["n_cached"] or 0))


def _batches(iterations: Sequence[Json], began: Iterable[tuple[Json, float]]) -> Iterator[tuple[Load, float]]:
    """What each recorded batch computed, and how long it took."""
    by_slot: dict[int, list[tuple[Json, float]]] = {}
    for task, since in began:
        by_slot.setdefault(task["slot"], []).append((task, since))
    depths = _depths(iterations, by_slot)
    for each in iterations:
        if each["run_ms"] is not None and (each["prompt"] or each["gen"]) and not each["error"]:
            prompt, decode = (sum(n for _, n in each[kind]) for kind in ("prompt", "gen"))
            yield Load(prompt, depths.get(each["i"], 0.0), decode), (each["run_ms"] + (each["plan_ms"] or 0.0)) / 1000


def _depths(iterations: Sequence[Json], by_slot: dict[int, list[tuple[Json, float]]]) -> dict[int, float]:
    """By iteration. A prompt that was done ended at its last token, one that was not began behind its cached ones."""
    found: dict[int, float] = {}
    prompts = {slot: [(t, i, n) for t, i, n, _ in batches if n] for slot, batches in _computed(iterations).items()}
    for slot, tasks in by_slot.items():
        mine = deque(prompts.get(slot, ()))
        for task, since in tasks:
            end = task["finished_at"] if task["finished_at"] is not None else math.inf
            part = []
            while mine and mine[0][0] < end:
                t, i, n = mine.popleft()
                if t >= since:
                    part.append((i, n))
            whole = (task["n_prompt"] or 0) - sum(n for _, n in part)
            before = max(0, whole if task["prompt_done_at"] is not None else task["n_cached"] or 0)
            for i, n in part:
                found[i] = found.get(i, 0.0) + depth_of(before, n)
                before += n
    return found


def _computed(iterations: Iterable[Json]) -> dict[int, list[tuple[float, int, int, int]]]:
    """For each slot the batches it had tokens in: start, number, prompt and decode tokens."""
    found: dict[int, list[tuple[float, int, int, int]]] = {}
    for each in iterations:
        for slot, n in each["prompt"]:
            found.setdefault(slot, []).append((each["t"], each["i"], n, 0))
        for slot, n in each["gen"]:
            found.setdefault(slot, []).append((each["t"], each["i"], 0, n))
    return found


type _Tokens = dict[int, list[tuple[float, int, int, int]]]


def _standing(task: Json, since: float, computed: _Tokens, later: _Tokens) -> Work:
    """A task that has a slot already. What its prompt had left is what was computed of it later, if that was recorded to its end;
    else what it asked for without what was computed before."""
    slot, last = task["slot"], task["i"]
    mine = [each for each in later.get(slot, ()) if last is None or each[1] <= last]
    ahead = sum(prompt for _, _, prompt, _ in mine)
    if task["prompt_done_at"] is None:
        done = sum(prompt for t, _, prompt, _ in computed.get(slot, ()) if t >= since)
        ahead = max(ahead, _asked(task) - done, 1)
    tokens = sum(n for _, _, _, n in mine)
    if ahead == 0 and not _ended_with_prompt(task):
        return _work(
            task, slot, 0, max(1, tokens + (0 if task["finished_at"] is not None else _rest(task))), task["submitted_at"]
        )
    return _work(task, slot, max(1, ahead), max(1, tokens + 1), task["submitted_at"])


def _ended_with_prompt(task: Json) -> bool:
    return task["finished_at"] is not None and not task["n_generated"]


def _rest(task: Json) -> int:
    """Tokens that a running task may still generate."""
    wanted = task.get("n_predict")
    return max(1, wanted - (task["n_generated"] or 0)) if wanted else _UNKNOWN_LENGTH


def _work(task: Json, slot: int, left: int, generate: int | None, at: float) -> Work:
    number = task["task"] if task["task"] is not None else -1
    length = generate if task["finished_at"] is not None or generate else _rest(task)
    before = max(0, (task["n_prompt"] or 0) - left)
    return Work(number, slot, left, before, max(1, length or 1), at, task["group"], task["client"])
