"""The phase barrier: every transition of its table, who may join, and what a cancel does in each phase."""

from __future__ import annotations

import pytest

from engine.scheduler.plan import FinishReason
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench

BARRIER = {"phase": "barrier"}


def barrier(slots: int = 3, n_batch: int = 8, **more: object) -> Bench:
    return Bench.make(slots, n_batch, BARRIER, **more)


def names(made: Bench) -> list[str]:
    return [plan.phase for plan in made.plans]


def cohort(made: Bench) -> dict[str, object] | None:
    found = made.phase()["cohort"]
    assert found is None or isinstance(found, dict)
    return found


class TestTransitions:
    def test_idle_until_a_slot_is_busy(self) -> None:
        made = barrier()
        assert made.phase() == {"name": "idle", "sealed": False, "cohort": None}
        made.submit(0, 20)
        assert made.slot(0)["state"] == "queued"
        assert made.slot(0)["waiting_for"] == "queued: cohort 1 begins with the next batch"

    def test_every_busy_slot_joins_the_new_cohort(self) -> None:
        made = barrier()
        made.submit(0, 20)
        made.submit(1, 20, children=(900,))
        made.step()
        assert made.phase()["name"] == "pp"
        assert made.phase()["sealed"] is False
        assert cohort(made) == {"id": 1, "members": [0, 1, 2], "completed": [], "age_s": 0.0}

    def test_without_a_member_the_cohort_ends(self) -> None:
        made = barrier()
        task = made.submit(0, 20)
        made.step()
        assert made.scheduler.cancel(task, made.now) is not None
        assert not made.scheduler.has_work
        made.step()
        assert made.phase() == {"name": "idle", "sealed": False, "cohort": None}

    def test_the_first_finished_prompt_seals(self) -> None:
        made = barrier()
        made.submit(0, 20)
        made.submit(1, 3)
        made.step()
        assert made.rows == ["s0:5 s1:3"], "what slot 1 left of its share went back to slot 0"
        assert made.phase()["sealed"] is True
        assert made.slot(1)["state"] == "held"
        assert made.settlements[-1].emissions == ()

    def test_sealed_stays_in_pp_until_every_prompt_is_done_then_all_first_tokens_come_in_slot_order(self) -> None:
        made = barrier(2)
        made.submit(1, 3, n_predict=2)
        made.submit(0, 20, n_predict=2)
        made.step()
        made.step()
        assert (made.phase()["name"], made.outputs) == ("pp", {})
        settlement = made.step()
        assert made.phase()["name"] == "tg"
        assert [(emission.slot, emission.first) for emission in settlement.emissions] == [(0, True), (1, True)]
        made.step()
        assert made.rows == ["s0:5 s1:3", "s0:8", "s0:7", "s0* s1*"]

    def test_when_all_stop_on_their_first_token_the_cohort_is_over_at_once(self) -> None:
        made = barrier()
        made.submit(0, 6)
        made.submit(1, 2)
        made.step()
        assert made.phase()["name"] == "idle"
        assert len(made.ended) == 2

    def test_the_next_cohort_begins_when_the_last_member_has_left(self) -> None:
        made = barrier()
        made.submit(0, 2, n_predict=4)
        made.submit(1, 2, n_predict=2)
        made.step()
        late = made.submit(1 + 1, 5, n_predict=2)
        made.step()
        assert made.slot(2)["waiting_for"] == "queued: cohort 1 generates, joins 2"
        made.run()
        assert made.rows == ["s0:2 s1:2", "s0* s1*", "s0*", "s0*", "s2:5", "s2*"]
        assert [plan.cohort for plan in made.plans] == [1, 1, 1, 1, 2, 2]
        assert made.ended[late].reason is FinishReason.LIMIT

    def test_a_failed_batch_ends_only_the_tasks_in_it(self) -> None:
        made = barrier(3, 4)
        first, second = made.submit(0, 2, n_predict=4), made.submit(1, 2, n_predict=4)
        made.step()
        waiting = made.submit(2, 2)
        made.fail("Compute error.")
        assert {task: made.ended[task].error for task in made.ended} == {first: "Compute error.", second: "Compute error."}
        assert made.phase()["name"] == "idle"
        made.run()
        assert made.ended[waiting].error == ""


class TestJoining:
    def test_an_arrival_joins_while_no_prompt_is_done(self) -> None:
        made = barrier()
        made.submit(0, 40)
        made.step()
        made.submit(1, 3)
        assert (made.slot(1)["member"], made.slot(1)["state"]) == (True, "waiting")

    def test_not_after_the_seal(self) -> None:
        made = barrier()
        made.submit(0, 40)
        made.submit(1, 3)
        made.step()
        made.submit(2, 3)
        assert made.slot(2)["member"] is False
        assert made.slot(2)["waiting_for"] == "queued: cohort 1 is sealed, joins 2"

    def test_a_seal_is_not_undone_by_a_cancel(self) -> None:
        made = barrier()
        made.submit(0, 40)
        done = made.submit(1, 3)
        made.step()
        made.scheduler.cancel(done, made.now)
        made.submit(2, 3)
        assert made.phase()["sealed"] is True
        assert made.slot(2)["state"] == "queued"

    def test_members_that_leave_without_finishing_do_not_seal(self) -> None:
        made = barrier(n_ctx_slot=64)
        made.submit(0, 40)
        gone = made.submit(1, 30)
        made.submit(2, 0, prompt=[])
        made.submit(2, 64)
        made.step()
        made.scheduler.cancel(gone, made.now)
        made.step(errors={})
        assert made.phase()["sealed"] is False

    def test_a_fully_cached_prompt_seals_after_one_token(self) -> None:
        made = barrier()
        base = list(range(10))
        made.submit(1, prompt=base)
        made.run()
        made.rows.clear()
        made.submit(0, 20)
        made.submit(1, prompt=base)
        made.step()
        assert made.rows == ["s0:7 s1:1"]
        assert made.phase()["sealed"] is True

    def test_membership_ignores_groups_and_types_and_they_take_turns_in_pp(self) -> None:
        made = barrier()
        for slot, n, group in ((0, 10, A), (1, 4, B), (2, 4, EMBEDDING)):
            made.submit(slot, n, group=group)
        made.run()
        assert made.rows == ["s0:8", "s0:2", "s1:4", "s2:4"]
        assert [plan.cohort for plan in made.plans] == [1, 1, 1, 1]

    def test_rotation_lets_groups_lead_in_turn(self) -> None:
        made = Bench.make(3, 8, {"phase": "barrier", "prefill_order": "rotating"})
        for slot, n, group in ((0, 10, A), (1, 4, B), (2, 4, A)):
            made.submit(slot, n, group=group)
        made.run()
        assert made.rows == ["s0:4 s2:4", "s1:4", "s0:6"]


class TestCancel:
    def test_of_the_last_unfinished_member_opens_generation(self) -> None:
        made = barrier()
        slow = made.submit(0, 40)
        held = made.submit(1, 3, n_predict=2)
        made.step()
        assert made.slot(1)["waiting_for"] == "held: cohort 1 waits for slot 0 (12 %)"
        made.scheduler.cancel(slow, made.now)
        assert made.scheduler.has_work
        settlement = made.step()
        assert [emission.task_id for emission in settlement.emissions] == [held]
        made.run()
        assert made.rows == ["s0:5 s1:3", "", "s1*"]

    def test_of_a_held_member_drops_its_token(self) -> None:
        made = barrier()
        made.submit(0, 12, n_predict=1)
        held = made.submit(1, 3)
        made.step()
        assert made.scheduler.cancel(held, made.now) is not None
        made.run()
        assert held not in made.outputs

    def test_of_the_last_generating_member_starts_the_next_cohort_in_the_same_iteration(self) -> None:
        made = barrier()
        long = made.submit(0, 2, n_predict=100)
        made.step()
        made.submit(1, 3)
        made.step()
        made.scheduler.cancel(long, made.now)
        made.step()
        assert made.rows[-1] == "s1:3"

    def test_of_a_waiting_non_member_changes_no_phase(self) -> None:
        made = barrier()
        made.submit(0, 2, n_predict=100)
        made.step()
        late = made.submit(1, 3)
        before = made.phase()
        made.scheduler.cancel(late, made.now)
        assert made.phase() == before

    def test_a_first_token_that_cannot_be_drawn_fails_its_slot_alone(self) -> None:
        made = barrier()
        broken, fine = made.submit(0, 3, n_predict=2), made.submit(1, 3, n_predict=2)
        made.step(errors={0: "the grammar does not accept any token"})
        made.run()
        assert made.ended[broken].error == "the grammar does not accept any token"
        assert len(made.outputs[fine]) == 2


class TestKinds:
    def test_an_embedding_leaves_at_once_and_seals(self) -> None:
        made = barrier()
        embedding = made.submit(0, 4, group=EMBEDDING)
        made.submit(1, 12)
        made.step()
        assert made.ended[embedding].reason is FinishReason.NONE
        assert made.phase()["sealed"] is True

    def test_a_cohort_of_embeddings_never_generates(self) -> None:
        made = barrier()
        for slot in range(3):
            made.submit(slot, 4, group=EMBEDDING)
        made.run()
        assert names(made) == ["pp", "pp"]
        assert made.outputs == {}

    def test_n_predict_0_waits_like_any_other_and_stops_at_its_first_token(self) -> None:
        made = barrier()
        none = made.submit(0, 2, n_predict=0)
        made.submit(1, 20)
        made.step()
        assert made.slot(0)["state"] == "held"
        made.run()
        assert len(made.outputs[none]) == 1

    def test_the_hold_is_booked_as_hold(self) -> None:
        made = barrier()
        held = made.submit(0, 2)
        made.submit(1, 20)
        made.run()
        ended = made.ended[held]
        assert (ended.first_visit_at, ended.prompt_done_at, ended.first_token_at) == (1.0, 1.0, 3.0)

    def test_equal_shares_when_there_are_more_members_than_room(self) -> None:
        made = Bench.make(5, 2, {"phase": "barrier", "prefill_order": "rotating"})
        for slot in range(5):
            made.submit(slot, 1)
        made.run()
        assert made.rows == ["s0:1 s1:1", "s2:1 s3:1", "s4:1"]


class TestHoldLimit:
    """Held for at most 2 s, a second an iteration: slot 1 is done in the first, slot 0 would need six."""

    def bench(self) -> tuple[Bench, int, int]:
        made = Bench.make(3, 8, {**BARRIER, "barrier_max_hold_ms": 2000})
        return made, made.submit(0, 40, n_predict=2), made.submit(1, 3, n_predict=3)

    def test_the_finished_generate_and_the_unfinished_join_the_next_cohort(self) -> None:
        made, long, short = self.bench()
        made.run()
        assert made.rows == ["s0:5 s1:3", "s0:8", "s0:8", "s1*", "s1*", "s0:8", "s0:8", "s0:3", "s0*"]
        assert [plan.cohort for plan in made.plans] == [1, 1, 1, 1, 1, 2, 2, 2, 2]
        ended = made.ended[short]
        assert ended.first_token_at is not None
        assert ended.prompt_done_at is not None
        assert ended.first_token_at - ended.prompt_done_at == 2.0
        assert len(made.outputs[long]) == 2

    def test_who_is_left_behind_says_so(self) -> None:
        made, _, _ = self.bench()
        for _ in range(3):
            made.step()
        assert (made.slot(0)["state"], made.slot(0)["member"], made.slot(0)["n_processed"]) == ("queued", False, 21)
        assert made.slot(0)["waiting_for"] == "queued: cohort 1 generates, joins 2"

    def test_no_hold_exceeds_the_limit_by_more_than_the_batch_in_flight(self) -> None:
        made = Bench.make(4, 8, {**BARRIER, "barrier_max_hold_ms": 2000})
        for slot, n in enumerate((60, 3, 30, 9)):
            made.submit(slot, n, n_predict=3)
        made.run()
        holds = [e.first_token_at - e.prompt_done_at for e in made.ended.values() if e.first_token_at and e.prompt_done_at]
        assert len(holds) == 4
        assert max(holds) <= 3.0

    def test_a_parent_is_left_behind_with_its_children(self) -> None:
        made = Bench.make(3, 8, {**BARRIER, "barrier_max_hold_ms": 2000})
        made.submit(0, 40, n_predict=2, children=(900,))
        made.submit(1, 3, n_predict=2)
        made.run()
        assert len(made.outputs[900]) == 2


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
