"""The phase barrier: what a cancel does in each phase, kinds of tasks, the longest hold."""

from __future__ import annotations

from engine.scheduler.plan import FinishReason
from tests.unit.scheduler.harness import EMBEDDING, Bench

BARRIER = {"phase": "barrier"}


def barrier(slots: int = 3, n_batch: int = 8, **more: object) -> Bench:
    return Bench.make(slots, n_batch, BARRIER, **more)


def names(made: Bench) -> list[str]:
    return [plan.phase for plan in made.plans]


def cohort(made: Bench) -> dict[str, object] | None:
    found = made.phase()["cohort"]
    assert found is None or isinstance(found, dict)
    return found


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
