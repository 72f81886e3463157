"""The phase barrier: every transition of its table, and who may join."""

from __future__ import annotations

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
