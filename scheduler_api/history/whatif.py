"""What another prefill order would have done with the same queue: a replay of a stall with the engine's own scheduler. Pure.

The only module of the console that imports the engine: engine.scheduler knows no clock, model or socket, and imitating its orders
here would be having them twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import EntryKind, Outcome, Plan
from engine.scheduler.policy import Policy, PolicyInvalid, PrefillOrder, RotationStart, changed, table
from engine.scheduler.slots import Cells
from engine.scheduler.task import Group, Task
from scheduler_api.history.chunks import end_of
from scheduler_api.history.costs import Costs, Load, depth_of, fit
from scheduler_api.history.stalls import Stretch, beginnings
from scheduler_api.history.tally import Json

MOST_STEPS = 20_000
#: A replay of the recorded order that is further off than this makes the others a guess.
GOOD_ERROR = 0.25
_UNKNOWN_LENGTH = 1000
ORDERS = tuple(order.value for order in PrefillOrder)


@dataclass(frozen=True, slots=True)
class _Work:
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
    present: list[_Work]
    arrivals: list[_Work]
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
    if policy.get("prefill_order") != PrefillOrder.PHYSICAL:
        return before[-1]["cursor"] if before else None
    last = next((each["prompt"] for each in reversed(before) if each["prompt"]), None)
    if last is None:
        return None
    return int(last[-1 if policy.get("rotation_start") == RotationStart.AFTER_LAST else 0][0])


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


def _standing(task: Json, since: float, computed: _Tokens, later: _Tokens) -> _Work:
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


def _work(task: Json, slot: int, left: int, generate: int | None, at: float) -> _Work:
    number = task["task"] if task["task"] is not None else -1
    length = generate if task["finished_at"] is not None or generate else _rest(task)
    before = max(0, (task["n_prompt"] or 0) - left)
    return _Work(number, slot, left, before, max(1, length or 1), at, task["group"], task["client"])


@dataclass(slots=True)
class _Replay:
    """One run of the scheduler over a scene, under one prefill order."""

    scene: Scene
    scheduler: Scheduler
    now: float
    groups: dict[str, Group] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)  # tokens of a task's prompt that came before the replay
    next_id: int = 10**9

    def wait_s(self) -> float | None:
        """From the stretch's beginning to the start of the batch that serves its task; None when that does not come."""
        scene = self.scene
        self._warm_up()
        # the last prompt token of one that was held stands for no service, it was served before
        held = any(work.held and work.id == scene.stretch.task["task"] for work in scene.present)
        counts = {EntryKind.GENERATION} if held else set(EntryKind)
        arrivals = list(scene.arrivals)
        for work in scene.present:
            if work.left or work.held:
                self._submit(work, extra=int(work.held))
        for _ in range(MOST_STEPS):
            while arrivals and arrivals[0].at <= self.now:
                self._submit(arrivals.pop(0))
            if not self.scheduler.has_work:
                if not arrivals:
                    return None
                self.now = arrivals[0].at
                continue
            plan = self.scheduler.plan(self.now)
            if any(entry.task_id == scene.stretch.task["task"] and entry.kind in counts for entry in plan.entries):
                return self.now - scene.stretch.start
            self._run(plan, self._seconds(plan))
        return None

    def _warm_up(self) -> None:
        """Brings the slots to where they stood, in no time: the cursor first, then who generates."""
        generating = [work for work in self.scene.present if not work.left and not work.held]
        busy = {work.slot for work in self.scene.present if not work.left}
        cursor = self.scene.cursor
        if cursor is not None and 0 <= cursor < self.scheduler.config.n_slots and cursor not in busy:
            self.next_id += 1
            self.scheduler.submit(Task(self.next_id, [self.next_id], n_predict=1, id_slot=cursor), self.now)
            self._settle_all()
        for work in sorted(generating, key=lambda work: work.slot == cursor):
            self._submit(work, extra=1)
        while any(self._waits(work) for work in generating):
            plan = self.scheduler.plan(self.now)
            if not plan.entries:
                break
            self._run(plan, 0.0)

    def _settle_all(self) -> None:
        for _ in range(4):
            if self.scheduler.has_work:
                self._run(self.scheduler.plan(self.now), 0.0)

    def _waits(self, work: _Work) -> bool:
        slots = self.scheduler.view(self.now)["slots"]
        assert isinstance(slots, list)
        return any(slot["task"] == work.id and slot["state"] not in ("generating", "held") for slot in slots)

    def _submit(self, work: _Work, extra: int = 0) -> None:
        """A prompt of tokens that no other has, so that nothing of it is found in a cache but what `extra` has laid there."""
        if extra:
            self.scheduler.set_cells(work.slot, Cells([work.id], self._group(work.group).lora))
        self.before[work.id] = work.before
        prompt = [work.id] * (work.left + (2 if extra else 0))
        task = Task(work.id, prompt, n_predict=work.generate + extra, id_slot=work.slot, group=self._group(work.group))
        self.scheduler.submit(task, max(self.now, work.at))

    def _group(self, name: str) -> Group:
        """Equal names are equal groups; which adapters they stand for does not matter here."""
        if name not in self.groups:
            number = len(self.groups)
            self.groups[name] = Group(lora=((number, 1.0),) if number else ())
        return self.groups[name]

    def _seconds(self, plan: Plan) -> float:
        prompts = [entry for entry in plan.entries if entry.kind is EntryKind.PROMPT]
        prompt = sum(len(entry.tokens) for entry in prompts)
        depth = sum(depth_of(self.before.get(entry.task_id, 0) + entry.pos, len(entry.tokens)) for entry in prompts)
        return self.scene.costs.of(Load(prompt, depth, plan.n_tokens - prompt))

    def _run(self, plan: Plan, seconds: float) -> None:
        self.now += seconds
        tokens = {slot: 0 for entry in plan.entries if entry.output for slot in (entry.slot, *entry.copy_to)}
        self.scheduler.settle(plan, Outcome(tokens), self.now)
        if not plan.entries:
            self.now += 1e-3  # nothing may run before time has passed


def replayed(scene: Scene, order: str) -> float | None:
    """The wait in seconds under a prefill order, the rest of the policy as it was; None when the replay never serves the task.

    Raises PolicyInvalid for a policy that this engine does not know.
    """
    info, works = scene.info, [*scene.present, *scene.arrivals]
    n_slots = max([info.get("n_slots") or 0, *(work.slot + 1 for work in works)])
    room = sum(work.left + work.generate + 8 for work in works) + 64
    n_batch = info["n_batch"]
    mode: Literal["split", "unified"] = "unified" if info.get("kv_mode") == "unified" else "split"
    config = SchedulerConfig(n_slots, room, room * n_slots, n_batch, min(info.get("n_ubatch") or n_batch, n_batch), kv_mode=mode)
    policy = changed(Policy(), {**scene.policy, "prefill_order": order}, table(n_batch))
    return _Replay(scene, Scheduler(config, policy, scene.begins), scene.begins).wait_s()


def elsewhere(scene: Scene) -> list[Json]:
    """Each prefill order's wait, the recorded one first: how far that is off the record says how far to believe the others."""
    recorded, of = str(scene.policy.get("prefill_order", PrefillOrder.PHYSICAL.value)), scene.stretch.seconds
    try:
        check = replayed(scene, recorded)
        waits = {order: check if order == recorded else replayed(scene, order) for order in ORDERS}
    except PolicyInvalid:
        return []
    error = None if check is None or of <= 0 else check / of - 1
    ranked = sorted(waits, key=lambda order: (order != recorded, waits[order] is None, waits[order] or 0.0))
    return [
        {
            "policy": {"prefill_order": order},
            "wait_s": None if waits[order] is None else round(waits[order] or 0.0, 4),
            "of": round(of, 4),
            "recorded": order == recorded,
            "error": None if error is None else round(error, 4),
            "text": _text(order, waits[order], of, recorded, error, scene),
        }
        for order in ranked
    ]


def _text(order: str, wait: float | None, of: float, recorded: str, error: float | None, scene: Scene) -> str:
    shown, name = scene.stretch, order.replace("_", " ")
    if order == recorded:
        if error is None:
            return f"The replay of the recorded order, {name}, never serves slot {shown.slot}, so it tells nothing of the others."
        size = (
            "by less than 1 %" if abs(error) < 0.01 else f"by {abs(error) * 100:.0f} % ({'longer' if error > 0 else 'shorter'})"
        )
        return f"The replay of the recorded order, {name}, differs {size}."
    if scene.info.get("kv_mode") == "unified":
        return f"Unified KV keeps physical order, so {name} would have changed nothing."
    if wait is None:
        return f"Under {name} slot {shown.slot} would not have been served within the replay."
    doubt = (
        ""
        if error is not None and abs(error) <= GOOD_ERROR
        else " This is a rough guess: the replay of the recorded order is off."
    )
    return f"Under {name} slot {shown.slot} would have waited about {_seconds(wait)} instead of {_seconds(of)}.{doubt}"


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s" if value < 10 else f"{value:.0f} s"
