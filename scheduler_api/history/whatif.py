"""What another prefill order would have done with the same queue: a replay of a stall with the engine's own scheduler. Pure.

The only module of the console that imports the engine: engine.scheduler knows no clock, model or socket, and imitating its orders
here would be having them twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import EntryKind, Outcome, Plan
from engine.scheduler.policy import Policy, PolicyInvalid, PrefillOrder, changed, table
from engine.scheduler.slots import Cells
from engine.scheduler.task import Group, Task
from scheduler_api.history.costs import Load, depth_of
from scheduler_api.history.scene import Scene, Work
from scheduler_api.history.tally import Json

MOST_STEPS = 20_000
#: A replay of the recorded order that is further off than this makes the others a guess.
GOOD_ERROR = 0.25
ORDERS = tuple(order.value for order in PrefillOrder)


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

    def _waits(self, work: Work) -> bool:
        slots = self.scheduler.view(self.now)["slots"]
        assert isinstance(slots, list)
        return any(slot["task"] == work.id and slot["state"] not in ("generating", "held") for slot in slots)

    def _submit(self, work: Work, extra: int = 0) -> None:
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
