"""Waiting for too long, and cells that are gone: what becomes of a task, its children and its slot, in both KV modes."""

from __future__ import annotations

import pytest

from engine.scheduler.admission import n_left_out
from engine.scheduler.plan import ErrorType, FinishReason
from engine.scheduler.task import Task
from tests.unit.scheduler.harness import Bench

KV_MODES = pytest.mark.parametrize("kv_mode", ["split", "unified"])
LATE = "it waited for too long"


@KV_MODES
def test_slots_whose_cells_are_lost_start_again_or_are_empty(kv_mode: str) -> None:
    """Slot 0 failed, slot 1 is half through its prompt, slot 2 would keep a beginning, slot 3 is idle."""
    made = Bench.make(4, 8, kv_mode=kv_mode)
    made.submit(2, prompt=[5, 6, 7, 8], n_predict=1)
    made.submit(3, 4)
    made.run()
    broken = made.submit(0, 4, n_predict=9)
    half = made.submit(1, 20, n_predict=3)
    kept = made.submit(2, prompt=[5, 6, 7, 8, 9], n_predict=2)
    made.step(errors={0: "not a number"}, lost=(0, 1, 2, 3))
    assert made.rows[-1] == "s0:4 s1:4"
    assert made.ended[broken].reason is FinishReason.ERROR
    assert (made.slot(1)["n_processed"], made.slot(1)["state"]) == (0, "prompt")
    assert [made.slot(index)["n_tokens"] for index in range(4)] == [0, 0, 0, 0]
    made.run()
    assert [len(made.outputs[task]) for task in (half, kept)] == [3, 2]
    assert made.ended[kept].n_cached == 0
    assert [start.n_past for plan in made.plans for start in plan.starts if start.task.id == kept] == [0]


@KV_MODES
def test_a_lost_prompt_gives_the_tokens_that_it_would_have_given(kv_mode: str) -> None:
    def outputs(lost: tuple[int, ...]) -> list[int]:
        made = Bench.make(2, 8, kv_mode=kv_mode)
        made.submit(0, prompt=[9] * 3, n_predict=1)
        task = made.submit(1, prompt=list(range(20)), n_predict=4)
        made.step(errors={0: "not a number"} if lost else None, lost=lost)
        return made.run().outputs[task]

    assert outputs((0, 1)) == outputs(())


@KV_MODES
@pytest.mark.parametrize("phase", ["continuous", "barrier"])
def test_only_who_had_no_visit_can_wait_for_too_long(kv_mode: str, phase: str) -> None:
    made = Bench.make(2, 8, {"phase": phase}, kv_mode=kv_mode)
    begun, behind, queued = made.submit(0, 30, n_predict=2), made.submit(1, 3), made.submit(-1, 3)
    made.step()
    late = {task: made.scheduler.expire(task, LATE, made.now) for task in (begun, queued, 999)}
    assert late[begun] is None
    assert late[999] is None
    found = late[queued]
    assert found is not None
    assert (found.reason, found.error, found.error_type, found.slot) == (FinishReason.ERROR, LATE, ErrorType.UNAVAILABLE, -1)
    made.gone(found)
    made.run()
    assert made.ended[begun].reason is made.ended[behind].reason is FinishReason.LIMIT


@KV_MODES
def test_a_task_that_waits_in_its_slot_leaves_it_to_the_next(kv_mode: str) -> None:
    made = Bench.make(2, 8, kv_mode=kv_mode)
    made.submit(0, 30)
    waiting, next_one = made.submit(1, 3), made.submit(1, 4)
    made.step()
    assert made.slot(1)["task"] == waiting
    found = made.scheduler.expire(waiting, LATE, made.now)
    assert found is not None
    assert (found.slot, found.error_type, found.first_visit_at) == (1, ErrorType.UNAVAILABLE, None)
    assert made.slot(1)["task"] == next_one


@pytest.mark.parametrize("slots", [2, 3])
def test_children_leave_with_a_parent_that_waits_for_too_long(slots: int) -> None:
    """With three slots they wait in slots of their own, with two in the queue."""
    made = Bench.make(slots, 8)
    made.submit(0, 30)
    made.step()
    parent = made.submit(-1, 3, children=(501,))
    found = made.scheduler.expire(parent, LATE, made.now)
    assert found is not None
    made.gone(found)
    made.step()
    assert made.ended[501].reason is FinishReason.ERROR
    assert made.ended[501].error_type is ErrorType.UNAVAILABLE


@pytest.mark.parametrize(
    ("tasks", "free", "out"),
    [
        ([(-1, 0)] * 3, {0, 1}, 1),
        ([(1, 0), (1, 0)], {0, 1}, 1),
        ([(5, 0), (-1, 0)], {0, 1}, 0),  # 5 modulo 4 is 1
        ([(0, 0), (-1, 0)], {1}, 1),
        ([(-1, 1), (-1, 0)], {0, 1}, 1),
        ([(-1, 2), (-1, 0)], {0, 1}, 1),  # the parent is left out, the other one fits
        ([], set(), 0),
    ],
)
def test_who_would_find_no_slot(tasks: list[tuple[int, int]], free: set[int], out: int) -> None:
    """Each task as its wish for a slot and its number of children, on a server of four slots."""
    made = [Task(n, [1], id_slot=slot, children=tuple(range(children))) for n, (slot, children) in enumerate(tasks)]
    assert n_left_out(made, free, 4) == out


def test_the_forecast_of_the_queue_holds() -> None:
    made = Bench.make(2, 8)
    made.submit(0, 30)
    wishes = [Task(900, [1], id_slot=0), Task(901, [1]), Task(902, [1])]
    assert made.scheduler.depth_with(wishes) == 2
    for task in wishes:
        made.scheduler.submit(task, made.now)
    assert made.scheduler.queue_depth == 2


def test_a_parent_that_holds_all_back_is_part_of_the_forecast() -> None:
    made = Bench.make(2, 8)
    made.submit(0, 3, n_predict=500)
    made.submit(-1, 3, children=(501,))
    for _ in range(4):  # twice as many as there are slots pass it
        made.submit(-1, 1)
        made.step()
        made.step()
    assert made.scheduler.depth_with([Task(900, [1])]) == made.scheduler.queue_depth + 1
    made.scheduler.submit(Task(900, [1]), made.now)
    assert made.free(1)


def test_how_long_slots_have_been_busy() -> None:
    made = Bench.make(2, 8)
    made.submit(0, 3, n_predict=50)
    made.step()
    made.step()
    assert made.scheduler.ages(made.now) == [2.0]


def test_the_documents_example_of_lost_cells() -> None:
    made = Bench.make(2, 8)
    made.submit(0, 4)
    made.submit(1, 20)
    made.step(errors={0: "not a number"}, lost=(0, 1))
    assert made.run().rows == ["s0:4 s1:4", "s1:8", "s1:8", "s1:4"]
