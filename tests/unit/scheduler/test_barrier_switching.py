"""The phase barrier: as the reference server has it, and switched on and off under load."""

from __future__ import annotations

import pytest

from engine.scheduler.plan import FinishReason
from tests.unit.scheduler.harness import A, B, Bench

BARRIER = {"phase": "barrier"}


def barrier(slots: int = 3, n_batch: int = 8, **more: object) -> Bench:
    return Bench.make(slots, n_batch, BARRIER, **more)


def names(made: Bench) -> list[str]:
    return [plan.phase for plan in made.plans]


def cohort(made: Bench) -> dict[str, object] | None:
    found = made.phase()["cohort"]
    assert found is None or isinstance(found, dict)
    return found


class TestCompatibilityWithTheReferenceServer:
    """The scenarios of the reference server's own tests, on the core."""

    def test_no_first_token_before_every_prompt_is_done(self) -> None:
        made = barrier(2, 32)
        made.submit(0, 2, n_predict=2)
        made.submit(1, 6 * 48, n_predict=2)
        done: set[int] = set()
        while made.scheduler.has_work:
            settlement = made.step()
            done |= {progress.task_id for progress in settlement.progress if progress.processed >= progress.total}
            if settlement.emissions:
                assert done == set(made.outputs)
        assert len(made.outputs) == 2

    def test_an_open_cohort_admits_an_arrival_that_finishes_first(self) -> None:
        made = barrier(2, 4)
        long = made.submit(0, 180)
        made.step()
        short = made.submit(1, 6)
        finished_prompt = None
        while made.scheduler.has_work:
            settlement = made.step()
            if any(p.task_id == short and p.processed == p.total for p in settlement.progress):
                finished_prompt = made.scheduler.iteration
                assert made.slot(0)["state"] == "prompt"
                processed = made.slot(0)["n_processed"]
                assert isinstance(processed, int)
                assert processed < 180
        assert finished_prompt is not None
        assert finished_prompt < made.first_in[long]

    def test_parent_and_children_generate_together(self) -> None:
        made = barrier(3, 32)
        parent = made.submit(-1, 70, n_predict=2, children=(900, 901))
        first = next(s for s in iter(made.step, None) if s.emissions)
        assert {emission.task_id for emission in first.emissions} == {parent, 900, 901}
        assert {progress.task_id for progress in first.progress if progress.processed == 70} == {parent, 900, 901}
        made.run()
        assert {task: len(tokens) for task, tokens in made.outputs.items()} == {parent: 2, 900: 2, 901: 2}

    def test_a_late_arrival_waits_for_the_whole_generation(self) -> None:
        made = barrier(2, 32, n_ctx_slot=2048)
        made.submit(0, 5, n_predict=100)
        made.step()
        late = made.submit(1, 8 * 36)
        for _ in range(99):
            made.step()
            assert made.slot(1)["n_processed"] == 0
        made.run()
        assert made.first_in[late] == 100 + 9

    def test_a_cancel_releases_the_waiting_child(self) -> None:
        made = barrier(2, 32)
        parent = made.submit(-1, 64 * 4, n_predict=16, children=(900,))
        made.step()
        assert made.scheduler.cancel(parent, made.now) is not None
        assert {made.slot(0)["state"], made.slot(1)["state"]} == {"idle"}
        assert made.step().finished[0].task_id == 900

    def test_a_held_slot_of_another_group_does_not_block_the_batch(self) -> None:
        made = barrier(2, 8)
        long = made.submit(1, 100, n_predict=4, group=A)
        made.step()
        short = made.submit(0, 4, n_predict=2, group=B)
        made.run()
        assert {made.ended[task].reason for task in (long, short)} == {FinishReason.LIMIT}


class TestSwitching:
    def test_to_continuous_lets_held_slots_go_with_the_next_iteration(self) -> None:
        made = barrier()
        held = made.submit(0, 3, n_predict=3)
        made.submit(1, 40)
        made.submit(2, 40)
        made.step()
        late_state = made.slot(0)["state"]
        made.switch(phase="continuous")
        settlement = made.step()
        assert late_state == "held"
        assert [(emission.task_id, emission.first) for emission in settlement.emissions] == [(held, True)]
        made.step()
        assert made.rows[-1].startswith("s0* s1:")
        assert made.phase() == {"name": "continuous", "sealed": False, "cohort": None}

    def test_to_a_barrier_drains_what_generates_before_the_next_prompts(self) -> None:
        made = Bench.make(3)
        made.submit(0, 2, n_predict=4)
        made.step()
        made.submit(1, 12, n_predict=2)
        made.step()
        made.switch(phase="barrier")
        assert made.slot(1)["waiting_for"] == "queued: cohort 1 generates, joins 2"
        made.run()
        assert made.rows == ["s0:2", "s0* s1:7", "s0*", "s0*", "s1:5", "s1*"]

    def test_to_a_barrier_with_prompts_alone_forms_a_cohort_of_them(self) -> None:
        made = Bench.make(3)
        made.submit(0, 20)
        made.submit(1, 20)
        made.step()
        made.switch(phase="barrier")
        made.step()
        assert made.rows == ["s0:8", "s0:4 s1:4"]
        assert cohort(made) == {"id": 1, "members": [0, 1], "completed": [], "age_s": 0.0}

    @pytest.mark.parametrize("first", ["barrier", "continuous"])
    def test_while_a_batch_is_in_flight_the_batch_is_settled_as_planned(self, first: str) -> None:
        made = Bench.make(2, policy={"phase": first})
        made.submit(0, 3, n_predict=2)
        made.submit(1, 20, n_predict=2)
        plan = made.scheduler.plan(1.0)
        other = {"barrier": "continuous", "continuous": "barrier"}[first]
        state = made.scheduler.set_policy({"phase": other}, expected_version=1, now=1.0)
        assert state.effective_from_iteration == 2
        assert made.phase()["name"] == plan.phase
        settlement = made.close(plan, made.scheduler.settle(plan, made.model.run(plan), 1.0))
        assert bool(settlement.emissions) == (first == "continuous")
        made.run()
        assert {len(tokens) for tokens in made.outputs.values()} == {2}

    def test_there_and_back_keeps_held_tokens(self) -> None:
        made = barrier(2)
        held = made.submit(0, 3, n_predict=2)
        made.submit(1, 30, n_predict=2)
        made.step()
        made.switch(phase="continuous")
        made.switch(phase="barrier")
        made.run()
        assert [len(made.outputs[task]) for task in (held, held + 1)] == [2, 2]
