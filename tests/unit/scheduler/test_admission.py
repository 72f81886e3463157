"""Which slot a task gets, who waits, what is reused, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduler.plan import FinishReason
from engine.scheduler.prefix import common_prefix, reusable
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench


def slot_of(made: Bench, task: int) -> int:
    return next(index for index in range(made.scheduler.config.n_slots) if made.slot(index)["task"] == task)


class TestChoice:
    def test_a_fresh_server_fills_from_the_top(self) -> None:
        made = Bench.make()
        assert [slot_of(made, made.submit()) for _ in range(4)] == [3, 2, 1, 0]

    def test_a_pinned_slot_is_taken_modulo_the_number_of_slots(self) -> None:
        made = Bench.make()
        assert slot_of(made, made.submit(6)) == 2

    def test_the_longest_common_beginning_wins_over_the_least_recently_used(self) -> None:
        made = Bench.make()
        base = list(range(20))
        made.submit(1, prompt=base)
        made.submit(2, prompt=base[:10])
        made.run()
        task = made.submit(prompt=[*base, 99])
        assert slot_of(made, task) == 1
        made.run()
        assert made.ended[task].n_cached == 20

    def test_a_tenth_of_the_prompt_is_not_enough(self) -> None:
        made = Bench.make()
        made.submit(1, prompt=[1, 2, 3])
        made.run()
        made.submit(3, prompt=list(range(500, 530)))
        made.run()
        assert slot_of(made, made.submit(prompt=[1, 2, 3, *range(100, 127)])) == 2

    def test_least_recently_used(self) -> None:
        made = Bench.make(2)
        made.submit(1, 2)
        made.run()
        made.submit(0, 2)
        made.run()
        assert slot_of(made, made.submit(n=2)) == 1


class TestQueue:
    def test_the_oldest_task_that_can_run_takes_the_freed_slot(self) -> None:
        """A task pinned to a slot that is still busy keeps its place and holds up nobody."""
        made = Bench.make(2)
        made.submit(0, 1, n_predict=9)
        made.submit(1, 1, n_predict=2)
        made.step()
        pinned, free, younger = made.submit(0, 2), made.submit(-1, 2), made.submit(-1, 2)
        assert made.scheduler.queue_depth == 3
        made.step()
        assert made.slot(1)["task"] == free
        made.run()
        assert made.first_in[free] < made.first_in[younger] < made.first_in[pinned]

    def test_an_idle_slot_is_not_kept_from_a_new_task_by_a_pinned_one(self) -> None:
        made = Bench.make(2)
        made.submit(0, 1, n_predict=9)
        made.submit(0, 1)
        assert slot_of(made, made.submit()) == 1

    def test_the_queue_shows_its_depth_and_oldest(self) -> None:
        made = Bench.make(1)
        made.submit(0, 30)
        made.step()
        made.submit(0, 1)
        made.step()
        made.step()
        assert made.view()["queue"] == {"depth": 1, "oldest_s": 2.0}

    def test_cancel_in_the_queue_frees_nothing_else(self) -> None:
        made = Bench.make(1)
        running, waiting = made.submit(0, 12), made.submit(0, 1)
        cancelled = made.scheduler.cancel(waiting, made.now)
        assert cancelled is not None
        assert (cancelled.slot, cancelled.reason) == (-1, FinishReason.CANCELLED)
        made.run()
        assert made.ended[running].reason is FinishReason.LIMIT
        assert made.scheduler.cancel(waiting, made.now) is None

    def test_a_cancelled_slot_goes_to_the_next_task_at_once(self) -> None:
        made = Bench.make(1)
        running, waiting = made.submit(0, 12), made.submit(0, 3)
        made.step()
        made.scheduler.cancel(running, made.now)
        assert made.slot(0)["task"] == waiting


class TestReuse:
    def test_a_fully_cached_prompt_evaluates_one_token(self) -> None:
        made = Bench.make()
        base = list(range(10))
        made.submit(0, prompt=base)
        made.run()
        task = made.submit(0, prompt=base)
        made.run()
        assert made.rows == ["s0:8", "s0:2", "s0:1"]
        assert made.ended[task].n_cached == 9

    def test_generated_tokens_count_as_cells(self) -> None:
        made = Bench.make()
        first = made.submit(0, prompt=[1, 2, 3], n_predict=3)
        made.run()
        answer = made.outputs[first]
        task = made.submit(0, prompt=[1, 2, 3, *answer, 7])
        made.run()
        assert made.ended[first].n_slot_tokens == 5, "the last token drawn is in no cell"
        assert made.ended[task].n_cached == 5

    def test_cache_prompt_false_starts_from_nothing(self) -> None:
        made = Bench.make()
        for _ in range(2):
            task = made.submit(0, prompt=[1, 2, 3], cache_prompt=False)
            made.run()
        assert made.ended[task].n_cached == 0

    def test_an_embedding_reuses_nothing(self) -> None:
        made = Bench.make()
        for _ in range(2):
            task = made.submit(0, prompt=[1, 2, 3], group=EMBEDDING)
            made.run()
        assert made.ended[task].n_cached == 0

    @pytest.mark.parametrize(("prompt", "kept"), [([1, 2, 3, 4], 3), ([1, 2, 3], 0), ([1, 2, 9, 9], 0)])
    def test_memory_that_cannot_trim_keeps_all_or_nothing(self, prompt: list[int], kept: int) -> None:
        made = Bench.make(can_trim=False)
        made.submit(0, prompt=[1, 2, 3])
        made.run()
        task = made.submit(0, prompt=prompt)
        made.run()
        assert made.ended[task].n_cached == kept

    def test_after_a_failed_batch_a_slot_relies_on_what_was_settled(self) -> None:
        made = Bench.make()
        made.submit(0, prompt=list(range(20)))
        made.step()
        made.fail()
        assert made.slot(0)["n_tokens"] == 8
        task = made.submit(0, prompt=list(range(20)))
        made.run()
        assert made.ended[task].n_cached == 8

    def test_without_trim_a_failed_slot_starts_from_nothing(self) -> None:
        made = Bench.make(can_trim=False)
        made.submit(0, prompt=list(range(20)))
        made.step()
        made.fail()
        assert made.slot(0)["n_tokens"] == 0


class TestRefused:
    def test_an_empty_prompt_ends_empty(self) -> None:
        made = Bench.make()
        task = made.submit(0, prompt=[])
        made.run()
        ended = made.ended[task]
        assert (ended.reason, ended.error, ended.error_type) == (FinishReason.NONE, "", None)

    def test_an_embedding_larger_than_a_ubatch(self) -> None:
        made = Bench.make(n_ubatch=4)
        task = made.submit(0, 5, group=EMBEDDING)
        made.step()
        ended = made.ended[task]
        text = "input (5 tokens) is too large to process. increase the physical batch size (current batch size: 4)"
        assert (ended.error, ended.error_type) == (text, "server_error")

    def test_one_token_less_than_the_context_fits_and_is_cut_after_its_first_token(self) -> None:
        made = Bench.make(n_ctx_slot=16)
        task = made.submit(0, 15, n_predict=-1)
        made.run()
        assert len(made.outputs[task]) == 1
        assert (made.ended[task].reason, made.ended[task].truncated) == (FinishReason.LIMIT, True)


class TestEnds:
    def test_the_context_limit(self) -> None:
        made = Bench.make(n_ctx_slot=16)
        task = made.submit(0, 10, n_predict=-1)
        made.run()
        assert len(made.outputs[task]) == 6
        assert made.ended[task].n_slot_tokens == 15
        assert made.ended[task].truncated

    def test_an_end_token_wins_over_the_limit(self) -> None:
        made = Bench.make()
        task = made.submit(0, 3, n_predict=1, eog=frozenset(range(50)))
        made.run()
        assert made.ended[task].reason is FinishReason.EOS
        assert len(made.outputs[task]) == 1

    def test_a_stop_word_ends_a_task_between_batches(self) -> None:
        made = Bench.make()
        task = made.submit(0, 3, n_predict=9)
        made.step()
        finished = made.scheduler.finish(task, FinishReason.WORD, made.now)
        assert finished is not None
        assert (finished.reason, finished.n_generated, finished.first_token_at) == (FinishReason.WORD, 1, 1.0)
        assert not made.scheduler.has_work
        assert made.scheduler.finish(task, FinishReason.WORD, made.now) is None

    def test_entries_of_a_task_that_is_gone_change_nothing(self) -> None:
        made = Bench.make()
        task = made.submit(0, 3, n_predict=9)
        plan = made.scheduler.plan(1.0)
        made.scheduler.cancel(task, 1.0)
        other = made.submit(0, 3)
        settlement = made.scheduler.settle(plan, made.model.run(plan), 1.0)
        assert (settlement.started, settlement.emissions, settlement.finished) == ((), (), ())
        made.run()
        assert made.ended[other].reason is FinishReason.LIMIT

    def test_a_backend_without_an_answer_fails_the_slot(self) -> None:
        made = Bench.make()
        task = made.submit(0, 3)
        plan = made.scheduler.plan(1.0)
        outcome = made.model.run(plan)
        outcome.tokens.clear()
        made.close(plan, made.scheduler.settle(plan, outcome, 1.0))
        assert made.ended[task].error == "the backend gave no token for this slot"

    def test_a_plan_that_was_never_settled_counts_as_failed(self) -> None:
        made = Bench.make()
        lost, other = made.submit(0, 8), made.submit(1, 8)
        made.model.run(made.scheduler.plan(1.0))
        made.run()
        assert made.ended[lost].error == "the batch was never settled"
        assert made.ended[other].reason is FinishReason.LIMIT
        assert made.rows == ["s1:8"]


tokens = st.lists(st.integers(0, 2), max_size=40)


@given(a=tokens, b=tokens, head=st.integers(0, 3000))
def test_the_common_prefix_is_the_one_found_token_by_token(a: list[int], b: list[int], head: int) -> None:
    shared = [7] * head
    a, b = shared + a, shared + b
    plain = next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == plain
    assert reusable(a, b, can_trim=True) == max(0, min(plain, len(b) - 1))


def test_cells_of_another_lora_list_are_neither_kept_nor_preferred() -> None:
    made = Bench.make(3, 8)
    prompt = [1, 2, 3, 4, 5, 6]
    made.submit(0, prompt=prompt, group=A)
    made.submit(1, prompt=prompt)
    made.run()
    under, plain = made.submit(prompt=[*prompt, 7], group=A), made.submit(prompt=[*prompt, 7])
    made.run()
    assert [(made.ended[task].slot, made.ended[task].n_cached) for task in (under, plain)] == [(0, 6), (1, 6)]
    other = made.submit(0, prompt=prompt, group=B)
    made.run()
    assert made.ended[other].n_cached == 0
    again = made.submit(0, prompt=prompt, group=A)
    made.run()
    assert made.ended[again].n_cached == 0


def test_an_embedding_s_cells_serve_completions_of_the_same_list() -> None:
    made = Bench.make(1, 8, split_embeddings=True)
    made.submit(0, prompt=[1, 2, 3], group=EMBEDDING)
    made.run()
    task = made.submit(0, prompt=[1, 2, 3, 4])
    made.run()
    assert made.ended[task].n_cached == 3
