"""A scheduler with a model that checks every plan against its cells, and whose next token follows from those cells alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import Emission, Entry, EntryKind, Finished, Outcome, Plan, Settlement
from engine.scheduler.policy import Policy, changed, table
from engine.scheduler.task import Group, Task, TaskType

A = Group(lora=((0, 1.0),))
B = Group(lora=((1, 1.0),))
EMBEDDING = Group(type=TaskType.EMBEDDING)


def make_scheduler(slots: int = 4, n_batch: int = 8, policy: Mapping[str, object] | None = None, **config: object) -> Scheduler:
    sizes: dict[str, object] = {"n_ctx_slot": 4096, "n_ctx": 4096 * max(1, slots), "n_ubatch": n_batch, **config}
    settings = SchedulerConfig(n_slots=slots, n_batch=n_batch, **sizes)  # type: ignore[arg-type]
    return Scheduler(settings, changed(Policy(), policy or {}, table(n_batch)))


class FakePoolFull(Exception):
    """The batch does not fit into what all slots share."""


class FakeModel:
    """Runs plans as a backend would: trims, appends at exact positions, copies to children; the next token hashes the cells.

    `pool`: the most cells of all slots together. A batch that would need more raises FakePoolFull, and nothing of it is written.
    """

    def __init__(self, n_slots: int, n_vocab: int = 50, pool: int | None = None) -> None:
        self.pool = pool
        self.cells: list[list[int]] = [[] for _ in range(n_slots)]
        self.sampling: list[int | None] = [None] * n_slots
        self._n_vocab = n_vocab

    def next_token(self, slot: int) -> int:
        value = 17
        for token in self.cells[slot]:
            value = (value * 31 + token + 1) % 1_000_003
        return value % self._n_vocab

    def run(self, plan: Plan, errors: Mapping[int, str] | None = None) -> Outcome:
        for slot in plan.purges:
            self.cells[slot].clear()
        for shift in plan.shifts:
            assert any(entry.slot == shift.slot for entry in plan.entries)
            del self.cells[shift.slot][shift.keep : shift.keep + shift.discard]
        for start in (*plan.starts, *plan.child_starts):
            assert start.n_past <= len(self.cells[start.slot])
            del self.cells[start.slot][start.n_past :]
            self.sampling[start.slot] = start.task.id
        if self.pool is not None and sum(map(len, self.cells)) + plan.n_tokens > self.pool:
            raise FakePoolFull
        failing = dict(errors or {})
        runs: dict[int, tuple[int, ...]] = {}
        for entry in plan.entries:
            assert entry.tokens
            assert self.sampling[entry.slot] == entry.task_id
            assert entry.pos == len(self.cells[entry.slot]), "positions must follow the cells"
            if entry.kind is EntryKind.GENERATION and len(entry.tokens) > 1 and entry.slot not in failing:
                runs[entry.slot] = self._checked(entry)
                continue
            self.cells[entry.slot].extend(entry.tokens)
            for child in entry.copy_to:
                self.cells[child] = list(self.cells[entry.slot])
        assert plan.drafted == sum(len(e.tokens) - 1 for e in plan.entries if e.kind is EntryKind.GENERATION)
        wanted = [slot for entry in plan.entries if entry.output for slot in (entry.slot, *entry.copy_to)]
        tokens = {slot: self.next_token(slot) for slot in wanted if slot not in failing and slot not in runs}
        return Outcome(tokens, failing, runs=runs or None)

    def _checked(self, entry: Entry) -> tuple[int, ...]:
        """Draws behind each token of an entry, until a drafted one is another than the one drawn; keeps those that were right."""
        run: list[int] = []
        for place, token in enumerate(entry.tokens):
            if place and token != run[-1]:
                break
            self.cells[entry.slot].append(token)
            run.append(self.next_token(entry.slot))
        return tuple(run)


@dataclass
class Bench:
    """A scheduler, its model and what came out of it. Time moves by one second an iteration, `took` of it in the batch."""

    scheduler: Scheduler
    model: FakeModel
    now: float = 0.0
    rows: list[str] = field(default_factory=list)
    cursors: list[int | None] = field(default_factory=list)
    outputs: dict[int, list[int]] = field(default_factory=dict)
    ended: dict[int, Finished] = field(default_factory=dict)
    finished_in: dict[int, int] = field(default_factory=dict)
    first_in: dict[int, int] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    next_id: int = 100
    took: float = 0.0

    @classmethod
    def make(cls, slots: int = 4, n_batch: int = 8, policy: Mapping[str, object] | None = None, **config: object) -> Bench:
        return cls(make_scheduler(slots, n_batch, policy, **config), FakeModel(slots))

    def submit(
        self, slot: int = -1, n: int = 1, *, prompt: Sequence[int] | None = None, n_predict: int = 1, **more: object
    ) -> int:
        """A prompt of `n` tokens, its beginning shared with no other, pinned to `slot`; answers with the task's id."""
        self.next_id += 1
        tokens = list(prompt) if prompt is not None else [self.next_id * 10_000 + index for index in range(n)]
        task = Task(self.next_id, tokens, n_predict=n_predict, id_slot=slot)
        self.scheduler.submit(replace(task, **more), self.now)  # type: ignore[arg-type]
        return self.next_id

    def step(self, errors: Mapping[int, str] | None = None, lost: Collection[int] = ()) -> Settlement:
        """`lost`: slots whose cells the model drops after the batch."""
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        outcome = replace(self.model.run(plan, errors), lost=frozenset(lost))
        for slot in lost:
            self.model.cells[slot].clear()
        return self.close(plan, self.scheduler.settle(plan, outcome, self.now + self.took))

    def fail(self, message: str = "Compute error.") -> Settlement:
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        if not plan.entries:
            return self.close(plan, self.scheduler.settle(plan, self.model.run(plan), self.now))
        self.model.run(plan)  # worst case: the cells were written before it failed
        return self.close(plan, self.scheduler.fail(plan, message, self.now))

    def close(self, plan: Plan, settlement: Settlement) -> Settlement:
        self.plans.append(plan)
        self.settlements.append(settlement)
        self.cursors.append(plan.cursor)
        self.rows.append(row(plan))
        for emission in settlement.emissions:
            self._heard(emission, plan)
        for finished in settlement.finished:
            self.gone(finished, plan.iteration)
        return settlement

    def _heard(self, emission: Emission, plan: Plan) -> None:
        assert emission.first == (emission.task_id not in self.outputs)
        self.first_in.setdefault(emission.task_id, plan.iteration)
        self.outputs.setdefault(emission.task_id, []).append(emission.token)

    def gone(self, finished: Finished, iteration: int = 0) -> None:
        assert finished.task_id not in self.ended, "a task ends once"
        self.ended[finished.task_id] = finished
        self.finished_in[finished.task_id] = iteration

    def run(self, limit: int = 1000, each: Callable[[], None] | None = None) -> Bench:
        """Steps until nothing is left to do; `each` runs before every step."""
        for _ in range(limit):
            if each is not None:
                each()
            if not self.scheduler.has_work:
                return self
            self.step()
        raise AssertionError(f"still busy after {limit} steps: {self.rows[-4:]}")

    def view(self) -> dict[str, object]:
        return self.scheduler.view(self.now)

    def slot(self, index: int) -> dict[str, object]:
        slots = self.view()["slots"]
        assert isinstance(slots, list)
        found: dict[str, object] = slots[index]
        return found

    def free(self, index: int) -> bool:
        return self.scheduler._slots[index].task is None

    def phase(self) -> dict[str, object]:
        found = self.view()["phase"]
        assert isinstance(found, dict)
        return found

    def switch(self, ttl_s: float | None = None, **changes: object) -> None:
        version = self.scheduler.policy(self.now).version
        self.scheduler.set_policy(changes, expected_version=version, now=self.now, ttl_s=ttl_s)


def row(plan: Plan) -> str:
    """A batch as the worked rows write it: `s1:3 s0:5`, a decode token as `s2*`."""
    return " ".join(f"s{e.slot}*" if e.kind is EntryKind.GENERATION else f"s{e.slot}:{len(e.tokens)}" for e in plan.entries)
