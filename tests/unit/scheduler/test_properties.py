"""What must hold under every policy, every switch and every fault: nothing lost, nothing counted twice, the same tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from engine.scheduler.plan import EntryKind, ErrorType, FinishReason, Plan, Settlement
from engine.scheduler.policy import BarrierJoin, PhaseMode, PrefillOrder, RotationStart
from engine.scheduler.slots import PROMPT_DONE, Slot, SlotState
from engine.scheduler.task import Group
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench

policies = st.fixed_dictionaries(
    {
        "prefill_order": st.sampled_from(list(PrefillOrder)),
        "rotation_start": st.sampled_from(list(RotationStart)),
        "phase": st.sampled_from(list(PhaseMode)),
        "prefill_chunk": st.one_of(st.none(), st.integers(1, 8)),
        "decode_share": st.one_of(st.none(), st.floats(0.01, 0.99)),
        "barrier_join": st.sampled_from(list(BarrierJoin)),
        "barrier_join_window_ms": st.integers(1, 5000),
        "barrier_max_hold_ms": st.one_of(st.none(), st.integers(1, 5000)),
        "barrier_max_generation_tokens": st.one_of(st.none(), st.integers(1, 4)),
    }
)
groups = st.sampled_from([Group(), A, B])


@dataclass(frozen=True)
class Wish:
    """A task to come: submitted before step `at`, its prompt made of few different tokens so that beginnings are shared."""

    at: int
    slot: int
    prompt: list[int]
    n_predict: int
    group: Group
    n_children: int


wishes = st.lists(
    st.builds(
        Wish,
        at=st.integers(0, 12),
        slot=st.integers(-1, 3),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=25),
        n_predict=st.integers(0, 6),
        group=groups,
        n_children=st.sampled_from([0, 0, 0, 1, 2]),
    ),
    min_size=1,
    max_size=8,
)


def serve(load: list[Wish], changes: dict[int, dict[str, Any]], **config: Any) -> dict[int, list[int]]:
    """Runs the load, changing the policy before the steps named, and answers with each task's tokens."""
    made = Bench.make(4, 8, **config)
    made.took = 0.5
    for step in range(2000):
        for index, wish in enumerate(load):
            if wish.at == step:
                made.next_id = 100 * index
                children = tuple(made.next_id + 2 + child for child in range(wish.n_children))
                more: dict[str, Any] = {"group": wish.group, "children": children, "eog": frozenset({3})}
                made.submit(wish.slot, prompt=wish.prompt, n_predict=wish.n_predict, **more)
        if step in changes:
            made.switch(**changes[step])
        if not made.scheduler.has_work and step > 12:
            break
        made.step()
    assert not made.scheduler.has_work
    assert made.scheduler.queue_depth == 0
    wanted = [100 * i + 1 for i in range(len(load))] + [100 * i + 2 + c for i, w in enumerate(load) for c in range(w.n_children)]
    assert sorted(made.ended) == sorted(wanted)
    assert {finished.reason for finished in made.ended.values()} <= {FinishReason.LIMIT, FinishReason.EOS}
    return made.outputs


@settings(max_examples=50, deadline=None)
@given(
    load=wishes,
    policy=policies,
    changes=st.dictionaries(st.integers(0, 30), policies, max_size=6),
    kv_mode=st.sampled_from(["split", "unified"]),
    can_trim=st.booleans(),
    cont_batching=st.booleans(),
)
def test_the_same_tokens_come_out_under_every_policy_and_every_switch(
    load: list[Wish],
    policy: dict[str, Any],
    changes: dict[int, dict[str, Any]],
    kv_mode: str,
    can_trim: bool,
    cont_batching: bool,
) -> None:
    """The model's next token is a pure function of the slot's cells, as greedy sampling is."""
    plain = serve(load, {})
    assert serve(load, {0: policy}, kv_mode=kv_mode, can_trim=can_trim, cont_batching=cont_batching) == plain
    assert serve(load, changes, kv_mode=kv_mode, can_trim=can_trim, cont_batching=cont_batching) == plain


KEPT = {"since", "cells", "last_used", "last_service", "lora", "shares"}


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of submit, step, cancel, disconnect, finish, waiting for too long, switch, failure and loss, in both KV modes."""

    tasks: Bundle[int] = Bundle("tasks")
    requests: Bundle[tuple[int, ...]] = Bundle("requests")  # a task's id and those of its children

    @initialize(
        kv_mode=st.sampled_from(["split", "unified"]),
        can_trim=st.booleans(),
        slots=st.integers(1, 4),
        cont_batching=st.booleans(),
        context_shift=st.booleans(),
    )
    def build(self, kv_mode: str, can_trim: bool, slots: int, cont_batching: bool, context_shift: bool) -> None:
        sizes: dict[str, Any] = {"n_ctx_slot": 40, "n_ctx": 40 * slots}
        switches: dict[str, Any] = {"can_trim": can_trim, "cont_batching": cont_batching}
        switches["context_shift"] = context_shift and can_trim
        self.made = Bench.make(slots, 8, kv_mode=kv_mode, **sizes, **switches)
        self.made.took = 0.5
        self.submitted: set[int] = set()
        self.generated = 0
        self.prompt_tokens = 0
        self.passed = [0] * slots
        self.overdue = [0] * slots  # batches that passed a slot over beyond its bound, while the order takes turns

    @rule(
        target=requests,
        slot=st.integers(-1, 5),
        prompt=st.lists(st.integers(0, 1), max_size=42),
        n_predict=st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 60]),
        group=st.sampled_from([Group(), A, EMBEDDING]),
        n_children=st.sampled_from([0, 0, 0, 1, 2]),
    )
    def submit(self, slot: int, prompt: list[int], n_predict: int, group: Group, n_children: int) -> tuple[int, ...]:
        return self.add(slot, prompt, n_predict, group, n_children)

    def add(self, slot: int, prompt: list[int], n_predict: int, group: Group, n_children: int) -> tuple[int, ...]:
        if n_predict < 0 and self.made.scheduler.config.context_shift:
            n_predict = 60  # it would go on for ever
        self.made.next_id += 10
        children = tuple(self.made.next_id + 2 + child for child in range(n_children))
        task = self.made.submit(slot, prompt=prompt, n_predict=n_predict, group=group, children=children)
        self.submitted |= {task, *children}
        return (task, *children)

    @rule(target=requests, prompts=st.lists(st.integers(1, 30), min_size=2, max_size=5), n_children=st.sampled_from([0, 1]))
    def crowd(self, prompts: list[int], n_children: int) -> MultipleResults[tuple[int, ...]]:
        """More than there are slots for, and beginnings that slots may hold already."""
        requests = [self.add(-1, [0] * n, 4, Group(), n_children) for n in prompts]
        return multiple(*requests)

    @rule(target=tasks, request=requests)
    def tasks_of(self, request: tuple[int, ...]) -> MultipleResults[int]:
        return multiple(*request)

    @rule(n=st.integers(1, 6))
    def step(self, n: int) -> None:
        for _ in range(n):
            self.check(self.made.step())

    @rule(slot=st.integers(0, 3))
    def step_with_a_fault(self, slot: int) -> None:
        self.check(self.made.step(errors={slot: "no candidate left"}))

    @rule(slot=st.integers(0, 3))
    def step_with_cells_lost(self, slot: int) -> None:
        """As under unified KV when a slot's output is no number: it fails, and whose prompt is not done starts again."""
        made = self.made
        made.now += 1.0
        plan = made.scheduler.plan(made.now)
        given = {one for entry in plan.entries if entry.output for one in (entry.slot, *entry.copy_to)}
        errors = {slot: "not a number"} if slot in given else {}
        lost = {one.id for one in made.scheduler._slots if one.state not in PROMPT_DONE and one.id not in given} | errors.keys()
        outcome = replace(made.model.run(plan, errors), lost=frozenset(lost if errors else ()))
        for one in outcome.lost:
            made.model.cells[one].clear()
        self.check(made.close(plan, made.scheduler.settle(plan, outcome, made.now + made.took)))

    @rule()
    def fail(self) -> None:
        before = {slot.task_id for slot in self.made.scheduler._slots if slot.task is not None}
        settlement = self.made.fail()
        self.generated += len(settlement.emissions)
        hit = {entry.task_id for entry in self.made.plans[-1].entries}
        ended = {finished.task_id for finished in settlement.finished if finished.task_id in before}
        children = {task for task in ended if "parent task" in self.made.ended[task].error}
        assert hit <= ended | (set() if self.made.plans[-1].entries else hit)
        assert not self.made.plans[-1].entries or ended == hit | children

    @rule(task=consumes(tasks))
    def cancel(self, task: int) -> None:
        others = self.living() - {task}
        finished = self.made.scheduler.cancel(task, self.made.now)
        if finished is not None:
            self.made.gone(finished)
            assert finished.reason is FinishReason.CANCELLED
        late = {one.task_id for one in self.made.scheduler._tenancy.ended}
        assert others - late == self.living() - {task} - late

    @rule(request=consumes(requests))
    def disconnect(self, request: tuple[int, ...]) -> None:
        """The reader of all answers of a prompt is gone."""
        for task in request:
            if (finished := self.made.scheduler.cancel(task, self.made.now)) is not None:
                self.made.gone(finished)
        assert not self.living() & set(request)

    @rule(request=requests)
    def wait_for_too_long(self, request: tuple[int, ...]) -> None:
        task = request[0]
        slot = self.made.scheduler._tenancy.where.get(task)
        begun = slot is not None and slot.visited
        living = self.living()
        finished = self.made.scheduler.expire(task, "it waited for too long", self.made.now)
        assert (finished is not None) == (task in living and not begun)
        if finished is None:
            assert self.living() == living
            return
        self.made.gone(finished)
        assert finished.error_type is ErrorType.UNAVAILABLE
        assert not self.living() & set(request)
        assert living - self.living() <= set(request)

    @rule(task=tasks)
    def finish(self, task: int) -> None:
        slot = self.made.scheduler._tenancy.where.get(task)
        if slot is not None and slot.state is SlotState.GENERATING:
            finished = self.made.scheduler.finish(task, FinishReason.WORD, self.made.now)
            assert finished is not None
            self.made.gone(finished)

    @rule(policy=policies, ttl_s=st.one_of(st.none(), st.floats(0.5, 20)))
    def switch(self, policy: dict[str, Any], ttl_s: float | None) -> None:
        self.made.switch(ttl_s, **policy)

    def living(self) -> set[int]:
        tenancy = self.made.scheduler._tenancy
        queued = {task for item in tenancy.queue for task in (item.task.id, *item.task.children)}
        return queued | set(tenancy.where)

    def check(self, settlement: Settlement) -> None:
        plan = self.made.plans[-1]
        totals = self.made.scheduler._totals
        self.generated += len(settlement.emissions)
        assert totals.generated_tokens == self.generated
        told = {progress.task_id for progress in settlement.progress}
        self.prompt_tokens += sum(
            len(entry.tokens) for entry in plan.entries if entry.kind is EntryKind.PROMPT and entry.task_id in told
        )
        assert totals.prompt_tokens == self.prompt_tokens
        self.check_turns(plan)
        assert len({entry.slot for entry in plan.entries}) == len(plan.entries)
        prompts = [entry for entry in plan.entries if entry.kind is EntryKind.PROMPT]
        assert not prompts or plan.n_tokens <= 8
        served = {entry.slot for entry in plan.entries}
        assert not served & {skip.slot for skip in plan.skipped}
        assert not served & set(plan.held)
        idle = not (plan.entries or settlement.emissions or settlement.finished)
        assert not idle or not self.made.scheduler._tenancy.where, "a busy server always does something"
        if plan.phase == "pp":
            assert all(entry.kind is EntryKind.PROMPT for entry in plan.entries)
        if plan.phase == "tg":
            beside = {entry.task_id for entry in prompts}
            assert not beside & set(self.made.outputs)
            assert not settlement.emissions or not beside
        group = {self.made.scheduler._slots[entry.slot].group for entry in plan.entries} - {None}
        assert len(group) <= 1 or plan.group in group

    def check_turns(self, plan: Plan) -> None:
        """A slot is served within max(8, 2 x slots) + slots - 1 batches, or soon after an order without turns is left."""
        slots, effective = self.made.scheduler._slots, self.made.scheduler.policy(self.made.now).effective
        bound = max(8, 2 * len(slots)) + len(slots) - 1
        for slot in slots if plan.entries else ():
            late = slot.passed > bound and effective.takes_turns
            self.overdue[slot.id] = self.overdue[slot.id] + (slot.passed > self.passed[slot.id]) if late else 0
            self.passed[slot.id] = slot.passed
        assert max(self.overdue) <= len(slots)

    @invariant()
    def each_task_is_in_exactly_one_place(self) -> None:
        tenancy = self.made.scheduler._tenancy
        places = [task for item in tenancy.queue for task in (item.task.id, *item.task.children)]
        places += list(tenancy.where)
        places += [finished.task_id for finished in tenancy.ended]
        places += list(self.made.ended)
        assert sorted(places) == sorted(self.submitted)

    @invariant()
    def slots_hold_what_the_model_holds(self) -> None:
        for slot, held in zip(self.made.scheduler._slots, self.made.model.cells, strict=True):
            cells = list(held)
            if slot.shift is not None:
                del cells[slot.shift.keep : slot.shift.keep + slot.shift.discard]
            assert slot.cells == cells[: len(slot.cells)]
            if slot.task is not None and slot.visited and slot.state is not SlotState.IDLE:
                assert slot.cells == cells
            assert len(slot.cells) < 40 + 1

    @invariant()
    def states_agree_with_their_facts(self) -> None:
        barrier = self.made.scheduler._phases.is_barrier
        for slot in self.made.scheduler._slots:
            assert (slot.task is None) == (slot.state is SlotState.IDLE)
            assert (slot.first_token is not None) == (slot.state is SlotState.HELD)
            assert not slot.member or barrier
            assert slot.paused_at is None or (barrier and slot.member and slot.state is SlotState.GENERATING)
            assert slot.state is not SlotState.QUEUED or barrier

    @invariant()
    def nobody_waits_while_a_slot_suits_him(self) -> None:
        scheduler = self.made.scheduler
        if scheduler.queue_depth and not scheduler._tenancy.where:
            raise AssertionError("tasks wait though every slot is idle")

    def teardown(self) -> None:
        if not hasattr(self, "made"):
            return
        self.made.run(limit=4000)
        assert set(self.made.ended) == self.submitted
        assert not self.living()
        scheduler = self.made.scheduler
        assert not scheduler._tenancy.where
        assert scheduler.queue_depth == 0
        assert scheduler._phases.cohort is None
        for slot in scheduler._slots:
            empty = Slot(slot.id)
            stays = {field.name for field in fields(Slot) if getattr(slot, field.name) != getattr(empty, field.name)}
            assert stays <= KEPT, "a task leaves its cells behind and nothing else"


SchedulerMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestSchedulerMachine = SchedulerMachine.TestCase
