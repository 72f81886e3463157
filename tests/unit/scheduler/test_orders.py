"""Fair shares, shortest first and the chunk, each with its worked example (n_batch 8)."""

from __future__ import annotations

from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench


def rows(made: Bench) -> str:
    return " | ".join(made.run().rows)


class TestFair:
    def test_equal_shares_and_what_is_left_goes_back(self) -> None:
        made = Bench.make(policy={"prefill_order": "fair"})
        ids = [made.submit(slot, n) for slot, n in enumerate((20, 20, 3))]
        assert rows(made) == "s0:3 s1:3 s2:2 | s1:3 s2:1 s0:4 | s0:4 s1:4 | s1:4 s0:4 | s0:4 s1:4 | s1:2 s0:1"
        assert [made.finished_in[task] for task in ids] == [6, 6, 2]

    def test_groups_lead_in_turn(self) -> None:
        made = Bench.make(policy={"prefill_order": "fair"})
        for slot, n, group in ((0, 12, A), (1, 4, B), (2, 4, A)):
            made.submit(slot, n, group=group)
        assert rows(made) == "s0:4 s2:4 | s1:4 | s0:8"

    def test_more_slots_than_room(self) -> None:
        made = Bench.make(slots=5, n_batch=2, policy={"prefill_order": "fair"})
        for slot in range(5):
            made.submit(slot, 2)
        made.step()
        made.step()
        assert made.rows == ["s0:1 s1:1", "s1:1 s2:1"]


class TestShortestFirst:
    def test_fewest_tokens_left_first(self) -> None:
        made = Bench.make(policy={"prefill_order": "shortest_first"})
        ids = [made.submit(slot, n) for slot, n in enumerate((20, 11, 3))]
        assert rows(made) == "s2:3 s1:5 | s1:6 s0:2 | s0:8 | s0:8 | s0:2"
        assert [made.finished_in[task] for task in ids] == [5, 2, 1]

    def test_cached_tokens_do_not_count(self) -> None:
        made = Bench.make(policy={"prefill_order": "shortest_first"})
        base = list(range(30))
        made.submit(1, prompt=base)
        made.run()
        made.rows.clear()
        made.submit(0, 5)
        made.submit(1, prompt=[*base, 91, 92])
        assert rows(made) == "s1:2 s0:5"

    def test_who_was_passed_over_often_enough_comes_first(self) -> None:
        """Four slots: after eight batches in a row."""
        made = Bench.make(policy={"prefill_order": "shortest_first"})
        made.submit(0, 40)
        for _ in range(20):
            if made.free(1):
                made.submit(1, 8)
            made.step()
        assert made.rows == [*["s1:8"] * 8, "s0:8", *["s1:8"] * 8, "s0:8", *["s1:8"] * 2]


class TestChunk:
    def test_limits_what_all_slots_put_into_a_batch(self) -> None:
        made = Bench.make(policy={"prefill_chunk": 2})
        for slot, n in enumerate((5, 3)):
            made.submit(slot, n)
        assert rows(made) == "s0:2 | s0:2 | s0:1 s1:1 | s1:2"

    def test_under_equal_shares(self) -> None:
        made = Bench.make(policy={"prefill_chunk": 3, "prefill_order": "fair"})
        made.submit(0, 6)
        made.submit(1, 1)
        assert rows(made) == "s0:2 s1:1 | s0:3 | s0:1"

    def test_does_not_count_generation(self) -> None:
        made = Bench.make(policy={"prefill_chunk": 2})
        made.submit(0, 1, n_predict=4)
        made.step()
        made.submit(1, 4)
        assert rows(made) == "s0:1 | s0* s1:2 | s0* s1:2 | s0*"

    def test_says_who_used_it_up(self) -> None:
        made = Bench.make(policy={"prefill_chunk": 2})
        made.submit(0, 5)
        made.submit(1, 3)
        made.step()
        assert made.slot(1)["waiting_for"] == "prefill chunk full, slot 0 took 2 of 2"

    def test_an_atomic_prompt_waits_for_a_chunk_that_is_left(self) -> None:
        made = Bench.make(policy={"prefill_chunk": 2})
        made.submit(0, 3)
        made.submit(1, 6, group=EMBEDDING)
        made.submit(2, 3, group=EMBEDDING)
        assert rows(made) == "s0:2 | s0:1 | s1:6 | s2:3"

    def test_does_not_cut_an_atomic_prompt(self) -> None:
        made = Bench.make(policy={"prefill_chunk": 2})
        made.submit(0, 6, group=EMBEDDING)
        assert rows(made) == "s0:6"


class TestPromptStops:
    def test_a_batch_ends_there_and_others_get_the_room(self) -> None:
        made = Bench.make(prompt_stops=(10, 2))
        for slot, n in ((0, 24), (1, 4)):
            made.submit(slot, n)
        assert rows(made) == "s0:8 | s0:6 s1:2 | s0:8 | s0:2 s1:2"

    def test_equal_shares_know_of_them(self) -> None:
        made = Bench.make(policy={"prefill_order": "fair"}, prompt_stops=(2,))
        for slot in (0, 1):
            made.submit(slot, 5)
        assert rows(made) == "s0:3 s1:3 | s1:2 s0:2"
