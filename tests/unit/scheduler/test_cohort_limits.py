"""How long a cohort takes arrivals in, how much it generates at a stretch, and who need not wait for it (a second a batch)."""

from __future__ import annotations

import pytest

from engine.scheduler.plan import FinishReason
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench


def barrier(**policy: object) -> Bench:
    return Bench.make(3, 8, {"phase": "barrier", **policy})


def windowed(ms: int, **policy: object) -> Bench:
    return barrier(barrier_join="window", barrier_join_window_ms=ms, **policy)


def cohorts(made: Bench) -> list[int | None]:
    return [plan.cohort for plan in made.plans]


class TestWindow:
    def test_arrivals_join_after_the_first_completion_until_the_window_has_passed(self) -> None:
        made = windowed(3000)
        made.submit(0, 40)
        made.submit(1, 3)
        made.step()
        assert (made.slot(1)["state"], made.phase()["sealed"]) == ("held", False)
        late = made.submit(2, 3)
        assert made.slot(2)["member"] is True
        made.run()
        assert made.rows == ["s0:5 s1:3", "s0:5 s2:3", "s0:8", "s0:8", "s0:8", "s0:6"]
        assert made.first_in[late] == 6

    def test_by_default_the_same_arrival_waits_for_the_next_cohort(self) -> None:
        made = barrier()
        made.submit(0, 40)
        made.submit(1, 3)
        made.step()
        made.submit(2, 3)
        made.run()
        assert made.rows == ["s0:5 s1:3", "s0:8", "s0:8", "s0:8", "s0:8", "s0:3", "s2:3"]

    def test_it_seals_when_the_window_has_passed_though_no_prompt_is_done(self) -> None:
        made = windowed(2000)
        made.submit(0, 60)
        for _ in range(3):
            assert made.phase()["sealed"] is False
            made.step()
        assert made.phase()["sealed"] is True
        made.submit(1, 3)
        assert made.slot(1)["waiting_for"] == "queued: cohort 1 is sealed, joins 2"

    def test_an_arrival_after_the_window_does_not_join_even_before_the_next_batch(self) -> None:
        made = windowed(1500)
        made.submit(0, 60)
        made.step()
        made.now += 1.5
        made.submit(1, 3)
        assert made.slot(1)["member"] is False

    def test_it_never_holds_an_idle_server(self) -> None:
        made = windowed(60_000)
        made.submit(0, 6, n_predict=3)
        made.step()
        assert (made.phase()["name"], made.phase()["sealed"]) == ("tg", True)
        made.submit(1, 3)
        assert made.slot(1)["waiting_for"] == "queued: cohort 1 generates, joins 2"
        made.run()
        assert made.rows == ["s0:6", "s0*", "s0*", "s1:3"]

    def test_an_embedding_that_leaves_does_not_seal(self) -> None:
        made = windowed(5000)
        made.submit(0, 4, group=EMBEDDING)
        made.submit(1, 30)
        made.step()
        made.submit(2, 3)
        assert made.slot(2)["member"] is True

    def test_back_to_first_completion_seals_a_cohort_with_a_finished_prompt(self) -> None:
        made = windowed(60_000)
        made.submit(0, 40)
        made.submit(1, 3)
        made.step()
        made.switch(barrier_join="first_completion")
        made.submit(2, 3)
        assert made.slot(2)["member"] is False

    def test_a_seal_is_not_undone_by_a_longer_window(self) -> None:
        made = barrier()
        made.submit(0, 40)
        made.submit(1, 3)
        made.step()
        made.switch(barrier_join="window", barrier_join_window_ms=60_000)
        made.submit(2, 3)
        assert made.slot(2)["member"] is False

    def test_a_hold_limit_ends_the_window_too(self) -> None:
        made = windowed(60_000, barrier_max_hold_ms=2000)
        made.submit(0, 40, n_predict=2)
        made.submit(1, 3, n_predict=2)
        made.run()
        assert made.rows[:4] == ["s0:5 s1:3", "s0:8", "s0:8", "s1*"]


class TestGenerationLimit:
    """Two tokens a member; slot 0 wants six, slot 1 three, and slot 2 comes while they generate."""

    def bench(self) -> tuple[Bench, list[int]]:
        made = barrier(barrier_max_generation_tokens=2)
        ids = [made.submit(0, 2, n_predict=6), made.submit(1, 3, n_predict=3)]
        made.step()
        return made, [*ids, made.submit(2, 12, n_predict=4)]

    def test_the_next_prompts_come_after_so_many_tokens_and_members_go_on_after_them(self) -> None:
        made, ids = self.bench()
        made.run()
        assert made.rows == ["s0:2 s1:3", "s0* s1*", "s2:8", "s2:4", "s0* s1* s2*", "s0* s2*", "s0* s2*", "s0*"]
        assert cohorts(made) == [1, 1, 2, 2, 2, 2, 2, 2]
        assert [plan.phase for plan in made.plans[:5]] == ["pp", "tg", "pp", "pp", "tg"]
        assert [len(made.outputs[task]) for task in ids] == [6, 3, 4]

    def test_a_paused_member_says_so(self) -> None:
        made, _ = self.bench()
        made.step()
        made.step()
        assert (made.slot(0)["state"], made.slot(0)["waiting_for"]) == ("generating", "paused: cohort 2 processes prompts")
        assert [skip.slot for skip in made.plans[-1].skipped] == [0, 1]
        made.step()
        made.step()
        assert made.slot(0)["waiting_for"] == ""

    def test_the_pause_is_booked_under_its_own_name(self) -> None:
        made, ids = self.bench()
        made.run()
        assert [made.ended[task].paused_s for task in ids] == [1.0, 1.0, 0.0]
        ended = made.ended[ids[0]]
        assert ended.first_token_at is not None
        totals = made.view()["totals"]
        assert isinstance(totals, dict)
        whole = sum(e.finished_at - e.first_token_at for e in made.ended.values() if e.first_token_at is not None)
        assert totals["generation_s"] == whole - 2.0

    def test_nobody_pauses_while_no_prompt_waits(self) -> None:
        made = barrier(barrier_max_generation_tokens=2)
        made.submit(0, 2, n_predict=5)
        made.run()
        assert made.rows == ["s0:2", *["s0*"] * 4]

    def test_a_prompt_that_comes_when_all_had_their_tokens_is_next(self) -> None:
        made = barrier(barrier_max_generation_tokens=2)
        made.submit(0, 2, n_predict=9)
        for _ in range(5):
            made.step()
        made.submit(1, 3)
        made.step()
        assert made.rows[-1] == "s1:3"

    def test_members_of_another_group_get_their_tokens_first(self) -> None:
        made = barrier(barrier_max_generation_tokens=3)
        made.submit(0, 2, n_predict=9, group=A)
        made.submit(1, 2, n_predict=9, group=B)
        made.step()
        made.step()
        made.submit(2, 3)
        made.run()
        assert made.rows[:7] == ["s0:2", "s1:2", "s0*", "s0*", "s1*", "s1*", "s2:3"]

    def test_a_cancel_of_the_last_prompt_lets_the_paused_go_on(self) -> None:
        made, ids = self.bench()
        made.step()
        made.step()
        made.scheduler.cancel(ids[2], made.now)
        made.step()
        assert made.rows[-1] == "s0* s1*"
        made.run()
        assert [len(made.outputs[task]) for task in ids[:2]] == [6, 3]

    def test_a_cancel_of_a_paused_member_books_its_pause(self) -> None:
        made, ids = self.bench()
        made.step()
        made.step()
        made.now += 5.0
        finished = made.scheduler.cancel(ids[0], made.now)
        assert finished is not None
        assert (finished.reason, finished.paused_s) == (FinishReason.CANCELLED, 5.0)

    def test_the_hold_limit_bounds_a_pause(self) -> None:
        made = barrier(barrier_max_generation_tokens=2, barrier_max_hold_ms=2000)
        made.submit(0, 2, n_predict=8)
        made.step()
        long = made.submit(1, 40, n_predict=2)
        made.run()
        assert made.rows[:8] == ["s0:2", "s0*", "s1:8", "s1:8", "s1:8", "s0*", "s0*", "s1:8"]
        assert len(made.outputs[long]) == 2

    @pytest.mark.parametrize("change", [{"barrier_max_generation_tokens": None}, {"phase": "continuous"}])
    def test_without_the_limit_the_paused_go_on_as_before(self, change: dict[str, object]) -> None:
        made, ids = self.bench()
        made.step()
        made.step()
        made.switch(None, **change)
        made.run()
        assert [len(made.outputs[task]) for task in ids] == [6, 3, 4]

    def test_after_a_switch_to_the_barrier_tokens_are_counted_from_there(self) -> None:
        made = Bench.make(3, 8)
        made.submit(0, 2, n_predict=20)
        for _ in range(6):
            made.step()
        made.submit(1, 3)
        made.switch(phase="barrier", barrier_max_generation_tokens=2)
        made.run()
        assert made.rows[6:10] == ["s0*", "s0*", "s1:3", "s0*"]

    def test_lifting_it_in_generation_lets_everybody_go_on_at_once(self) -> None:
        made = barrier(barrier_max_generation_tokens=2)
        made.submit(0, 2, n_predict=9, group=A)
        made.submit(1, 2, n_predict=9, group=B)
        made.step()
        made.step()
        made.submit(2, 3)
        made.step()
        made.step()
        assert made.slot(0)["waiting_for"] == "paused: had its tokens of cohort 1"
        made.switch(barrier_max_generation_tokens=None)
        made.step()
        assert made.rows[-1] == "s0*"


class TestEmbeddingsBeside:
    """An embedding needs no token, so it need not wait for a cohort that it cannot join."""

    @pytest.mark.parametrize("order", ["physical", "rotating"])
    def test_while_a_cohort_generates_it_leads_a_batch_when_due(self, order: str) -> None:
        made = barrier(prefill_order=order)
        made.submit(0, 2, n_predict=40)
        made.step()
        embedding = made.submit(1, 4, group=EMBEDDING)
        assert (made.slot(1)["state"], made.slot(1)["member"]) == ("waiting", False)
        made.run()
        assert made.rows[:11] == ["s0:2", *["s0*"] * 8, "s1:4", "s0*"]
        assert made.ended[embedding].reason is FinishReason.NONE
        assert len(made.outputs[101]) == 40

    def test_while_a_sealed_cohort_processes_prompts_it_shares_its_batches_by_turns(self) -> None:
        made = barrier(prefill_order="rotating")
        made.submit(0, 40)
        made.submit(1, 3)
        made.step()
        embedding = made.submit(2, 4, group=EMBEDDING)
        made.step()
        assert made.rows[-1] == "s2:4"
        assert made.ended[embedding].error == ""
        assert made.phase()["cohort"] == {"id": 1, "members": [0, 1], "completed": [1], "age_s": 1.0}

    def test_it_joins_a_cohort_that_is_open(self) -> None:
        made = barrier()
        made.submit(0, 40)
        made.step()
        made.submit(1, 4, group=EMBEDDING)
        assert made.slot(1)["member"] is True
