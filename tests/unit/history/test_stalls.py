from __future__ import annotations

from typing import Any

import pytest

from scheduler_api.history import stalls
from scheduler_api.history.stalls import Stretch
from scheduler_api.history.tally import Roster
from tests.support.stub_servers import iteration
from tests.support.tasks import ended


def skipping(i: int, t: float, why: str, **more: Any) -> dict[str, Any]:
    return {**iteration(i, t, **more), "skipped": [[1, why]]}


# Slot 1 gets its task at 0.5, in the middle of a batch of slot 0; three batches later it is served.
ITERATIONS = [
    iteration(1, 0.0, prompt=[[0, 100]], ms=1000),
    skipping(2, 1.0, "batch full, slot 0 took 100 of 100", prompt=[[0, 75], [2, 25]], ms=1000),
    skipping(3, 2.0, "batch full, slot 0 took 100 of 100", prompt=[[0, 100]], ms=1000),
    skipping(4, 3.0, "group mismatch with slot 0", prompt=[[0, 10]], ms=500),
    iteration(5, 4.0, prompt=[[1, 30]], ms=500),
    iteration(6, 4.5, gen=[[1, 1]], ms=100),
]
DOC = ended(1, i=4, slot=0, client="doc", submitted_at=0.0, finished_at=3.5)
EVAL = ended(3, i=2, slot=2, client="eval", submitted_at=0.9, finished_at=2.0)
CHAT = ended(2, i=6, slot=1, client="chat", submitted_at=0.5, first_visit_at=4.0, finished_at=4.6)
TASKS = [DOC, EVAL, CHAT]


def test_a_stretch_runs_from_the_slot_to_the_first_batch_and_from_batch_to_batch() -> None:
    assert stalls.stretches(ITERATIONS, TASKS, 1, 10.0) == [Stretch(1, CHAT, 0.5, 4.0)]
    assert stalls.stretches(ITERATIONS, TASKS, 0, 10.0) == []
    late = [*ITERATIONS[:5], iteration(6, 6.0, gen=[[1, 1]], ms=100)]
    assert stalls.stretches(late, [{**CHAT, "finished_at": 6.1}], 1, 10.0)[1] == Stretch(
        1, {**CHAT, "finished_at": 6.1}, 4.5, 6.0
    )


def test_a_task_that_runs_still_waits_until_the_end_of_the_record() -> None:
    running = {**CHAT, "finished_at": None, "i": None}
    assert stalls.stretches(ITERATIONS[:3], [running], 1, 3.0) == [Stretch(1, running, 0.5, 3.0, open=True)]


def test_what_a_task_waited_until_it_was_cancelled_is_a_stretch() -> None:
    gone = {**CHAT, "reason": "cancelled", "finished_at": 2.5}
    assert stalls.stretches(ITERATIONS[:3], [gone], 1, 3.0) == [Stretch(1, gone, 0.5, 2.5)]


def test_the_stretch_that_covers_most_of_the_range_is_meant() -> None:
    some = [Stretch(1, CHAT, 0.0, 3.0), Stretch(1, CHAT, 4.0, 9.0)]
    assert stalls.longest(some, 2.0, 4.5) == some[0]
    assert stalls.longest(some, 2.5, 6.0) == some[1]
    assert stalls.longest(some, 3.2, 3.8) is None


def test_blockers_part_a_batchs_time_by_tokens_and_their_shares_leave_idle_time_out() -> None:
    told = stalls.blockers(ITERATIONS, Roster(TASKS, []), 1, 0.5, 4.0)
    assert told == [
        # half a second of the first batch, three quarters of the second, the third, half a second of the fourth
        {"slot": 0, "client": "doc", "task": 101, "iterations": 4, "tokens": 285, "seconds": 2.75, "share": round(2.75 / 3.5, 4)},
        {"slot": 2, "client": "eval", "task": 103, "iterations": 1, "tokens": 25, "seconds": 0.25, "share": round(0.25 / 3.5, 4)},
    ]


def test_the_reason_is_what_most_sentences_tell() -> None:
    assert stalls.reason(ITERATIONS, 1, 0.5, 4.0) == ("batch full", "batch full, slot 0 took 100 of 100")


def test_without_a_sentence_the_reason_is_the_batch_it_came_into_or_none_at_all() -> None:
    assert stalls.reason(ITERATIONS[:1], 1, 0.5, 1.0) == (stalls.ARRIVED, "")
    assert stalls.reason([], 1, 0.5, 1.0) == (stalls.NO_BATCH, "")
    held = [{**iteration(1, 0.0, prompt=[[0, 9]]), "held": [1]}]
    assert stalls.reason(held, 1, 0.0, 1.0) == ("held", "held")


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("batch full, slot 0 took 2048 of 2048", "batch full"),
        ("waits: batch full, slot 0 took 2048 of 2048", "batch full"),
        ("held: cohort 17 waits for slot 2 (63 %)", "held"),
        ("queued: cohort 3 is sealed, joins 4", "queued"),
        ("decode share: generation is owed 20 ms", "decode share"),
        ("needs 700 tokens in one batch, 12 of 512 are free", "needs"),
        ("a sentence of another build, with 3 slots", "a sentence of another build"),
        ("", "no reason told"),
    ],
)
def test_kinds_of_sentences(sentence: str, kind: str) -> None:
    assert stalls.kind_of(sentence) == kind


def test_of_many_iterations_the_first_and_the_last_are_named() -> None:
    many = [iteration(n, n / 10, prompt=[[0, 1]], ms=100) for n in range(500)]
    told = stalls.numbers(many, 1, 0.0, 50.0)
    assert (len(told), told[:100], told[100:]) == (200, list(range(100)), list(range(400, 500)))
    assert stalls.numbers(ITERATIONS, 1, 0.5, 4.0) == [1, 2, 3, 4]
