"""A pool without room for the next batch: idle slots give way, then the youngest prompt, then the youngest task of the batch."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.plan import FinishReason
from engine.scheduler.slots import SlotState
from tests.unit.scheduler.harness import Bench, FakeModel, FakePoolFull
from tests.unit.scheduler.test_documents import DOCUMENT
from tests.unit.scheduler.test_properties import policies

FULL = "Context size has been exceeded."


def bench(pool: int = 32, slots: int = 3, **more: Any) -> Bench:
    made = Bench.make(slots, 8, kv_mode="unified", n_ctx=pool, n_ctx_slot=pool, **more)
    made.model = FakeModel(slots, pool=pool)
    return made


def step(made: Bench) -> None:
    made.now += 1.0
    plan = made.scheduler.plan(made.now)
    try:
        outcome = made.model.run(plan)
    except FakePoolFull:
        made.close(plan, made.scheduler.overflow(plan, FULL, made.now))
    else:
        made.close(plan, made.scheduler.settle(plan, outcome, made.now))


def run(made: Bench, limit: int = 500) -> Bench:
    for _ in range(limit):
        if not made.scheduler.has_work:
            return made
        step(made)
    raise AssertionError(f"still busy: {made.rows[-6:]}")


def state(made: Bench, slot: int) -> SlotState:
    return made.scheduler._slots[slot].state


def test_the_youngest_of_those_who_generate_ends_and_the_others_go_on() -> None:
    made = bench()
    old, young = made.submit(1, 8, n_predict=20), made.submit(0, 8, n_predict=20)
    run(made)
    assert made.ended[young].error == FULL
    assert made.ended[young].reason is FinishReason.ERROR
    assert made.ended[old].reason is FinishReason.LIMIT
    assert made.ended[old].n_generated == 20


def test_a_prompt_that_finds_no_room_is_parked_and_starts_again() -> None:
    made = bench()
    old = made.submit(0, 10, n_predict=8)
    step(made)
    step(made)
    young = made.submit(1, 20, n_predict=4)
    run(made)
    assert made.ended[old].n_generated == 8
    assert made.ended[young].n_generated == 4
    reasons = {skip.reason for plan in made.plans for skip in plan.skipped if skip.slot == 1}
    assert "parked until the KV cache has room for its 20 tokens" in reasons
    alone = bench()
    alone.next_id = young - 1
    alone.submit(1, 20, n_predict=4)
    assert run(alone).outputs[young] == made.outputs[young]


def test_a_parked_prompt_that_may_come_back_at_once_leaves_nothing_in_the_memory() -> None:
    """Its own cells are what makes the room."""
    made = bench()
    others = [made.submit(0, 5, n_predict=12), made.submit(2, 5, n_predict=12)]
    step(made)
    task = made.submit(1, 19, n_predict=1)
    run(made)
    assert {made.ended[one].reason for one in (*others, task)} == {FinishReason.LIMIT}


def test_who_is_not_in_the_batch_is_not_touched() -> None:
    """Slot 2 is held by a barrier while the prompts of the others fill the pool."""
    made = bench(policy={"phase": "barrier"})
    first = made.submit(2, 3, n_predict=3)
    second, third = made.submit(0, 20, n_predict=3), made.submit(1, 20, n_predict=3)
    while state(made, 2) is not SlotState.HELD:
        step(made)
    run(made)
    assert made.ended[third].error == FULL
    assert {made.ended[task].n_generated for task in (first, second)} == {3}


def test_idle_slots_give_way_first_also_with_cells_that_nobody_counts() -> None:
    made = bench()
    made.submit(2, 20, n_predict=1)
    run(made)
    made.model.cells[1] = [1] * 10  # left by a batch that failed
    task = made.submit(0, 20, n_predict=5)
    run(made)
    assert made.ended[task].n_generated == 5
    assert made.model.cells[1] == made.model.cells[2] == []


def test_two_prompts_that_cannot_both_be_held_take_turns() -> None:
    made = bench()
    first, second = made.submit(0, 20, n_predict=2), made.submit(1, 20, n_predict=2)
    run(made)
    assert {made.ended[task].reason for task in (first, second)} == {FinishReason.LIMIT}


def test_the_row_of_the_document_is_what_happens() -> None:
    made, rows = bench(), []
    made.submit(0, 20, n_predict=3)
    made.submit(1, 20, n_predict=3)
    while made.scheduler.has_work:
        step(made)
        fits = made.settlements[-1].progress or made.settlements[-1].emissions
        rows.append(made.rows[-1] if fits else f"({made.rows[-1]})")
    assert " | ".join(rows) in DOCUMENT


def test_split_caches_have_nobody_who_could_give_way() -> None:
    made = Bench.make(2, 8)
    task = made.submit(0, 4, n_predict=2)
    made.now += 1.0
    plan = made.scheduler.plan(made.now)
    made.close(plan, made.scheduler.overflow(plan, FULL, made.now))
    assert made.ended[task].error == FULL


def alone(prompt: list[int], n: int) -> list[int]:
    model = FakeModel(1)
    model.cells[0].extend(prompt)
    for _ in range(n):
        model.cells[0].append(model.next_token(0))
    return model.cells[0][len(prompt) :]


tasks = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 20), st.integers(0, 1)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(load=tasks, policy=policies, shift=st.booleans())
def test_each_task_ends_and_its_tokens_are_those_it_has_alone(load: list[Any], policy: dict[str, Any], shift: bool) -> None:
    made = bench(policy=policy, context_shift=shift)
    prompts: dict[int, list[int]] = {}
    for at in range(7):
        for when, prompt, n, n_children in load:
            if when == at:
                made.next_id += 10
                children = tuple(made.next_id + 2 + i for i in range(n_children))
                task = made.submit(-1, prompt=prompt, n_predict=n, children=children)
                prompts |= dict.fromkeys((task, *children), prompt)
        step(made)
    run(made)
    n_tasks = sum(1 + n_children for *_, n_children in load)
    assert len(made.ended) == n_tasks
    survivors = [task for task, end in made.ended.items() if end.reason is not FinishReason.ERROR]
    assert survivors, "the oldest task always comes to its end"
    if not shift:
        assert all(tokens == alone(prompts[task], len(tokens)) for task, tokens in made.outputs.items())
    assert {end.error for end in made.ended.values()} <= {"", FULL} | {
        end.error for end in made.ended.values() if end.error.startswith("parent task")
    }
    for slot, cells in zip(made.scheduler._slots, made.model.cells, strict=True):
        assert slot.state is SlotState.IDLE
        assert slot.cells == cells[: len(slot.cells)]
