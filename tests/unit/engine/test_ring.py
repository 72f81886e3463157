from __future__ import annotations

from engine.ring import Ring, TaskRing, iteration_ring, record_json, task_json
from engine.scheduler.plan import Finished, FinishReason, Skip
from engine.scheduler.records import IterationRecord
from engine.scheduler.task import Task


def record(iteration: int) -> IterationRecord:
    return IterationRecord(
        iteration,
        1000.0 + iteration,
        0.05,
        1.5,
        0.02,
        ((0, 8),),
        ((1, 1),),
        (Skip(2, "full"),),
        (),
        "continuous",
        None,
        False,
        0,
        0,
        1,
        0,
    )


def ring_of(count: int, size: int) -> Ring[IterationRecord]:
    ring = iteration_ring(size)
    for iteration in range(1, count + 1):
        ring.append(record(iteration))
    return ring


def numbers(answer: tuple[list[IterationRecord], bool]) -> tuple[list[int], bool]:
    return [found.iteration for found in answer[0]], answer[1]


def test_an_empty_ring_has_no_gap() -> None:
    ring = iteration_ring(4)
    assert ring.last == 0
    assert numbers(ring.after(0, 10)) == ([], False)


def test_what_is_newer_comes_oldest_first() -> None:
    ring = ring_of(5, 10)
    assert numbers(ring.after(2, 10)) == ([3, 4, 5], False)
    assert numbers(ring.after(2, 2)) == ([3, 4], False)
    assert numbers(ring.after(5, 10)) == ([], False)
    assert numbers(ring.after(99, 10)) == ([], False)


def test_what_left_the_ring_is_a_gap() -> None:
    ring = ring_of(20, 4)
    assert numbers(ring.after(16, 10)) == ([17, 18, 19, 20], False)
    assert numbers(ring.after(15, 10)) == ([17, 18, 19, 20], True)


def test_the_newest_alone_leave_a_gap_before_them() -> None:
    ring = ring_of(10, 10)
    assert numbers(ring.after(0, 3, newest=True)) == ([8, 9, 10], True)
    assert numbers(ring.after(7, 3, newest=True)) == ([8, 9, 10], False)


def test_an_iteration_as_json() -> None:
    shown = record_json(record(7))
    assert shown["i"] == 7
    assert shown["skipped"] == [(2, "full")]
    assert shown["gen"] == ((1, 1),)


def test_an_ended_task_is_kept_without_its_prompt() -> None:
    ring = TaskRing(2)
    for task_id in range(1, 4):
        finished = Finished(0, task_id, FinishReason.LIMIT, n_prompt=5, submitted_at=1.0, first_token_at=2.0, finished_at=3.0)
        ring.add(40 + task_id, Task(task_id, [1, 2, 3], client="chat"), finished, 0.25)
    records, gap = ring.after(0, 10)
    assert gap
    assert [record.number for record in records] == [2, 3]
    shown = task_json(records[-1])
    assert (shown["n"], shown["i"], shown["task"], shown["client"], shown["worst_gap_s"]) == (3, 43, 3, "chat", 0.25)
    assert (shown["reason"], shown["first_visit_at"], shown["first_token_at"]) == ("limit", None, 2.0)
    assert not any(isinstance(field, Task) for field in records[-1])
