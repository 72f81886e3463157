"""One prompt, several completions: children wait for the parent's prompt and get a copy of its cells."""

from __future__ import annotations

from engine.scheduler.plan import FinishReason
from engine.scheduler.task import SamplingParams
from tests.unit.scheduler.harness import Bench


def test_children_start_from_the_parents_cells_with_a_sampler_of_their_own() -> None:
    made = Bench.make()
    parent = made.submit(0, 12, n_predict=3, children=(900, 901), sampling=SamplingParams(seed=7))
    made.run()
    assert made.rows == ["s0:8", "s0:4", "s0* s2* s3*", "s0* s2* s3*"]
    starts = {start.task.id: (start.slot, start.task.sampling.seed) for plan in made.plans for start in plan.child_starts}
    assert starts == {900: (3, 8), 901: (2, 9)}
    assert made.plans[1].entries[0].copy_to == (2, 3)
    assert made.outputs[900] == made.outputs[parent], "the model is greedy, so equal cells give equal tokens"
    assert [made.ended[task].n_slot_tokens for task in (parent, 900, 901)] == [14, 14, 14]


def test_a_child_is_started_when_its_parents_prompt_is_done() -> None:
    made = Bench.make()
    parent = made.submit(0, 12, children=(900,))
    assert made.step().started == (parent,)
    assert made.step().started == (900,)


def test_a_parent_waits_until_all_its_slots_are_free() -> None:
    made = Bench.make(3)
    busy = [made.submit(slot, 2, n_predict=3 + slot) for slot in range(2)]
    made.step()
    parent = made.submit(-1, 2, children=(900, 901))
    assert made.scheduler.queue_depth == 1
    made.run()
    assert made.first_in[parent] > max(made.finished_in[task] for task in busy)


def test_single_tasks_cannot_pass_a_parent_for_ever() -> None:
    """The slots are freed in turn, never both at once, and younger tasks always wait."""
    made = Bench.make(2)
    for n_predict in (3, 4):
        made.submit(-1, 1, n_predict=n_predict)
    parent = made.submit(-1, 1, children=(900,))
    started: list[int] = []
    while parent not in made.ended and len(made.rows) < 60:
        made.submit(-1, 1, n_predict=2)
        started += made.step().started
    assert parent in made.ended
    assert set(started[6:]) == {parent, 900}, "two at the start, then twice as many as there are slots"


def test_a_parents_failure_before_its_prompt_is_done_ends_its_children() -> None:
    made = Bench.make()
    parent = made.submit(0, 12, children=(900,))
    other = made.submit(1, 12)
    made.step(errors={0: "bad token"})
    assert made.ended[parent].error == "bad token"
    assert made.ended[900].error == f"parent task {parent} ended before its prompt was processed"
    made.run()
    assert made.ended[other].reason is FinishReason.LIMIT


def test_a_parents_failure_at_its_first_token_spares_its_children() -> None:
    made = Bench.make()
    parent = made.submit(0, 3, n_predict=2, children=(900,))
    made.step(errors={0: "no candidate left"})
    made.run()
    assert made.ended[parent].reason is FinishReason.ERROR
    assert len(made.outputs[900]) == 2


def test_after_a_failed_copy_the_childs_slot_relies_on_nothing() -> None:
    made = Bench.make(2)
    made.submit(1, prompt=[1, 2, 3])
    made.run()
    made.submit(0, 3, children=(900,))
    made.fail()
    task = made.submit(1, prompt=[1, 2, 3])
    made.run()
    assert made.ended[task].n_cached == 0


def test_a_childs_failure_is_its_own() -> None:
    made = Bench.make()
    parent = made.submit(0, 3, n_predict=2, children=(900,))
    made.step(errors={3: "no candidate left"})
    made.run()
    assert made.ended[900].error == "no candidate left"
    assert len(made.outputs[parent]) == 2


def test_a_child_can_be_cancelled_alone() -> None:
    made = Bench.make()
    parent = made.submit(0, 12, n_predict=2, children=(900, 901))
    made.step()
    assert made.scheduler.cancel(900, made.now) is not None
    made.run()
    assert (len(made.outputs[parent]), len(made.outputs[901]), 900 in made.outputs) == (2, 2, False)


def test_cancelling_a_parent_that_generates_leaves_its_children() -> None:
    made = Bench.make()
    parent = made.submit(0, 3, n_predict=5, children=(900,))
    made.step()
    made.scheduler.cancel(parent, made.now)
    made.run()
    assert len(made.outputs[900]) == 5


def test_a_queued_parent_takes_its_children_with_it_and_can_lose_one() -> None:
    made = Bench.make(2)
    busy = made.submit(0, 2, n_predict=9)
    parent = made.submit(-1, 2, children=(900,))
    other = made.submit(0, 2, children=(901,))
    cancelled = made.scheduler.cancel(parent, made.now)
    assert cancelled is not None
    assert cancelled.slot == -1
    assert [finished.task_id for finished in made.step().finished] == [900]
    gone = made.scheduler.cancel(901, made.now)
    assert gone is not None
    assert gone.reason is FinishReason.CANCELLED
    made.scheduler.cancel(busy, made.now)
    made.run()
    assert made.ended[other].reason is FinishReason.LIMIT


def test_more_children_than_slots_are_refused() -> None:
    made = Bench.make(2)
    parent = made.submit(-1, 2, children=(900, 901))
    finished = made.step().finished
    assert [one.task_id for one in finished] == [parent, 900, 901]
    assert {one.error for one in finished} == {"n_cmpl cannot be greater than the number of slots, please increase -np"}
