"""The worked rows of both traversal orders: exact batches, cursors and the iteration in which each prompt is done (n_batch 8)."""

from __future__ import annotations

import pytest

from engine.scheduler.orders import rotated
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench

PHYSICAL = {"prefill_order": "physical"}
AFTER_LAST = {"prefill_order": "rotating", "rotation_start": "after_last"}
AFTER_FIRST = {"prefill_order": "rotating", "rotation_start": "after_first"}
FAIR = {"prefill_order": "fair"}
SHORTEST = {"prefill_order": "shortest_first"}
ROTATING = [pytest.param(AFTER_LAST, id="after_last"), pytest.param(AFTER_FIRST, id="after_first")]


def bench(policy: dict[str, str], sizes: list[int], kv_mode: str = "split") -> tuple[Bench, list[int]]:
    made = Bench.make(policy=policy, kv_mode=kv_mode)
    return made, [made.submit(slot, n) for slot, n in enumerate(sizes)]


def rows(made: Bench) -> str:
    return " | ".join(made.rows)


def done(made: Bench, ids: list[int]) -> list[int]:
    return [made.finished_in[task] for task in ids]


class TestColdAndWarm:
    """A cold prompt of 20 on slot 0; slot 1 holds a cached beginning and has 3 (or 12) tokens to do, one iteration later."""

    def run(self, policy: dict[str, str], uncached: int) -> tuple[Bench, list[int]]:
        made = Bench.make(policy=policy)
        base = list(range(1, 31))
        made.submit(1, prompt=base)
        made.run()
        made.rows.clear()
        made.scheduler._planner.cursor = None
        before = made.scheduler.iteration
        cold = made.submit(0, 20)
        made.step()
        warm = made.submit(1, prompt=base + list(range(501, 501 + uncached)))
        made.run()
        made.finished_in = {task: iteration - before for task, iteration in made.finished_in.items()}
        return made, [cold, warm]

    def test_physical(self) -> None:
        made, ids = self.run(PHYSICAL, 3)
        assert rows(made) == "s0:8 | s0:8 | s0:4 s1:3"
        assert done(made, ids) == [3, 3]
        assert made.ended[ids[1]].n_cached == 30

    @pytest.mark.parametrize("policy", ROTATING)
    def test_rotating(self, policy: dict[str, str]) -> None:
        made, ids = self.run(policy, 3)
        assert rows(made) == "s0:8 | s1:3 s0:5 | s0:7"
        assert done(made, ids) == [3, 2]
        assert made.cursors[-3:] == ([0, 0, 0] if policy is AFTER_LAST else [0, 1, 0])

    def test_physical_longer(self) -> None:
        made, ids = self.run(PHYSICAL, 12)
        assert rows(made) == "s0:8 | s0:8 | s0:4 s1:4 | s1:8"
        assert done(made, ids) == [3, 4]

    @pytest.mark.parametrize("policy", ROTATING)
    def test_rotating_longer(self, policy: dict[str, str]) -> None:
        made, ids = self.run(policy, 12)
        assert rows(made) == "s0:8 | s1:8 | s0:8 | s1:4 s0:4"
        assert done(made, ids) == [4, 4]


class TestMultipleContributors:
    def test_physical(self) -> None:
        made, ids = bench(PHYSICAL, [20, 3, 3, 3])
        assert rows(made.run()) == "s0:8 | s0:8 | s0:4 s1:3 s2:1 | s2:2 s3:3"
        assert done(made, ids) == [3, 3, 4, 4]
        assert made.cursors == [None] * 4

    def test_after_last(self) -> None:
        made, ids = bench(AFTER_LAST, [20, 3, 3, 3])
        assert rows(made.run()) == "s0:8 | s1:3 s2:3 s3:2 | s0:8 | s3:1 s0:4"
        assert done(made, ids) == [4, 2, 2, 4]
        assert made.cursors[:3] == [0, 3, 0]

    def test_after_first(self) -> None:
        made, ids = bench(AFTER_FIRST, [20, 3, 3, 3])
        assert rows(made.run()) == "s0:8 | s1:3 s2:3 s3:2 | s3:1 s0:7 | s0:5"
        assert done(made, ids) == [4, 2, 2, 3]
        assert made.cursors == [0, 1, 3, 0]

    def test_two_long_and_a_short_physical(self) -> None:
        made, ids = bench(PHYSICAL, [20, 20, 3])
        assert rows(made.run()) == "s0:8 | s0:8 | s0:4 s1:4 | s1:8 | s1:8 | s2:3"
        assert done(made, ids) == [3, 5, 6]

    def test_two_long_and_a_short_after_last(self) -> None:
        made, ids = bench(AFTER_LAST, [20, 20, 3])
        assert rows(made.run()) == "s0:8 | s1:8 | s2:3 s0:5 | s1:8 | s0:7 s1:1 | s1:3"
        assert done(made, ids) == [5, 6, 3]

    def test_two_long_and_a_short_after_first(self) -> None:
        made, ids = bench(AFTER_FIRST, [20, 20, 3])
        assert rows(made.run()) == "s0:8 | s1:8 | s2:3 s0:5 | s0:7 s1:1 | s1:8 | s1:3"
        assert done(made, ids) == [4, 6, 3]


class TestRepeatedLowIndexArrivals:
    """Slot 0 gets a new prompt of 8 whenever it is free, for 8 iterations; slot 1 has 12 tokens to do."""

    def run(self, policy: dict[str, str]) -> tuple[Bench, int]:
        made = Bench.make(policy=policy)
        made.submit(0, 8)
        other = made.submit(1, 12)

        def refill() -> None:
            if 0 < len(made.rows) < 8 and made.free(0):
                made.submit(0, 8)

        return made.run(each=refill), other

    def test_physical_starves_the_higher_slot(self) -> None:
        made, other = self.run(PHYSICAL)
        assert made.rows == ["s0:8"] * 8 + ["s1:8", "s1:4"]
        assert made.finished_in[other] == 10

    @pytest.mark.parametrize("policy", ROTATING)
    def test_rotating_serves_it(self, policy: dict[str, str]) -> None:
        made, other = self.run(policy)
        assert made.rows[:4] == ["s0:8", "s1:8", "s0:8", "s1:4 s0:4"]
        assert made.finished_in[other] == 4


class TestSkips:
    @pytest.mark.parametrize("policy", ROTATING)
    def test_decode_token_first_then_the_circle(self, policy: dict[str, str]) -> None:
        made = Bench.make(policy=policy)
        made.submit(3, 1, n_predict=9)
        made.step()
        made.scheduler._planner.cursor = 1
        made.submit(0, 5)
        made.submit(1, 5)
        made.step()
        assert made.rows[-1] == "s3* s0:5 s1:2"
        assert made.cursors[-1] == (1 if policy is AFTER_LAST else 0)

    @pytest.mark.parametrize("policy", ROTATING)
    def test_a_batch_full_of_decode_tokens_leaves_the_cursor(self, policy: dict[str, str]) -> None:
        made = Bench.make(slots=9, policy=policy)
        for slot in range(8):
            made.submit(slot, 1, n_predict=9)
        made.step()
        cursor = made.cursors[-1]
        made.submit(8, 5)
        made.step()
        assert made.rows[-1] == " ".join(f"s{slot}*" for slot in range(8))
        assert made.cursors[-1] == cursor
        assert made.slot(8)["waiting_for"] == "batch full, 8 generating slots took 8 of 8"

    @pytest.mark.parametrize("policy", ROTATING)
    def test_more_decode_tokens_than_a_batch_are_all_served(self, policy: dict[str, str]) -> None:
        made = Bench.make(slots=10, policy={**policy, "phase": "barrier"})
        for slot in range(10):
            made.submit(slot, 1, n_predict=9)
        made.step()
        made.step()
        made.step()
        assert made.rows[-1] == " ".join(f"s{slot}*" for slot in range(10))

    @pytest.mark.parametrize("policy", ROTATING)
    def test_a_waiting_child_is_passed_over(self, policy: dict[str, str]) -> None:
        made = Bench.make(slots=3, policy=policy)
        parent = made.submit(0, 12, children=(900,))
        made.submit(1, 4)
        made.step()
        assert made.rows[-1] == "s0:8"
        assert made.cursors[-1] == 0
        child = next(index for index in range(3) if made.slot(index)["task"] == 900)
        assert made.slot(child)["waiting_for"] == f"parent task {parent} has not finished its prompt"

    @pytest.mark.parametrize("policy", ROTATING)
    def test_a_prompt_too_long_costs_nobody_anything(self, policy: dict[str, str]) -> None:
        made = Bench.make(policy=policy, n_ctx_slot=32)
        refused = made.submit(0, 32)
        made.submit(1, 12)
        made.step()
        assert made.rows == ["s1:8"]
        assert made.cursors == [1]
        ended = made.ended[refused]
        assert ended.error == "request (32 tokens) exceeds the available context size (32 tokens), try increasing it"
        assert (ended.slot, ended.error_type) == (-1, "exceed_context_size_error")

    @pytest.mark.parametrize("policy", ROTATING)
    def test_an_atomic_prompt_that_does_not_fit_is_skipped(self, policy: dict[str, str]) -> None:
        made = Bench.make(policy=policy)
        made.submit(0, 5, group=EMBEDDING)
        made.submit(1, 6, group=EMBEDDING)
        made.step()
        assert made.rows == ["s0:5"]
        assert made.cursors == [0]
        assert made.slot(1)["waiting_for"] == "needs 6 tokens in one batch, 3 of 8 are free"
        made.step()
        assert made.rows[-1] == "s1:6"


class TestEmptyPools:
    def test_no_slots(self) -> None:
        assert rotated([], 3, 0) == 0
        made = Bench.make(slots=0, policy=AFTER_LAST)
        assert not made.scheduler.has_work
        assert made.scheduler.plan(1.0).entries == ()

    def test_none_pending_leaves_the_cursor(self) -> None:
        made, _ = bench(AFTER_LAST, [3])
        made.run()
        assert not made.scheduler.has_work
        assert made.scheduler.plan(9.0).cursor == 0

    @pytest.mark.parametrize(("cursor", "first"), [(None, 0), (-1, 0), (0, 1), (2, 3), (3, 0), (7, 0), (9, 2)])
    def test_any_cursor_names_a_place_in_the_circle(self, cursor: int | None, first: int) -> None:
        assert rotated([0, 1, 2, 3], cursor, 4) == first


class TestGroups:
    def run(self, policy: dict[str, str]) -> tuple[Bench, list[int]]:
        made = Bench.make(policy=policy)
        ids = [made.submit(slot, n, group=group) for slot, n, group in ((0, 20, A), (1, 4, B), (2, 3, A))]
        return made.run(), ids

    def test_physical(self) -> None:
        made, ids = self.run(PHYSICAL)
        assert rows(made) == "s0:8 | s0:8 | s0:4 s2:3 | s1:4"
        assert done(made, ids) == [3, 4, 3]

    @pytest.mark.parametrize("policy", ROTATING)
    def test_rotating(self, policy: dict[str, str]) -> None:
        made, ids = self.run(policy)
        assert rows(made) == "s0:8 | s1:4 | s2:3 s0:5 | s0:7"
        assert done(made, ids) == [4, 2, 3]
        assert made.cursors[:2] == [0, 1]
        assert [plan.anchor for plan in made.plans] == [0, 1, 2, 0]

    @pytest.mark.parametrize("policy", [PHYSICAL, AFTER_LAST])
    def test_a_generating_slot_decides_the_group(self, policy: dict[str, str]) -> None:
        made = Bench.make(policy=policy)
        made.submit(3, 1, n_predict=5, group=A)
        made.step()
        made.submit(1, 4, group=B)
        made.submit(0, 12, group=A)
        for _ in range(4):
            made.step()
            assert "s1" not in made.rows[-1]
            assert made.cursors[-1] in (None, 0, 3)
            assert made.slot(1)["waiting_for"] == "group mismatch with slot 3"
        made.run()
        assert made.rows[-1] == "s1:4"


class TestKvModes:
    @pytest.mark.parametrize("policy", [PHYSICAL, AFTER_LAST, AFTER_FIRST, FAIR, SHORTEST])
    def test_unified_keeps_physical_order_and_the_cursor(self, policy: dict[str, str]) -> None:
        made, _ = bench(policy, [20, 3, 3, 3], kv_mode="unified")
        assert rows(made.run()) == "s0:8 | s0:8 | s0:4 s1:3 s2:1 | s2:2 s3:3"
        assert made.cursors == [None] * 4

    def test_a_full_unified_pool_takes_the_cells_of_idle_slots(self) -> None:
        made = Bench.make(slots=2, n_batch=32, n_ctx=256, n_ctx_slot=256, kv_mode="unified", policy=AFTER_LAST)
        first, second = made.submit(0, 200), made.submit(1, 200)
        made.run()
        assert made.scheduler.iteration == 13
        assert made.finished_in[first] == 7
        assert made.finished_in[second] == 13
        assert [plan.purges for plan in made.plans if plan.purges] == [(0,)]


class TestDecodeMix:
    """Each task generates four more tokens after its first."""

    def run(self, policy: dict[str, str]) -> tuple[Bench, list[int]]:
        made = Bench.make(policy=policy)
        return made, [made.submit(slot, n, n_predict=5) for slot, n in enumerate((20, 3, 3))]

    def test_physical(self) -> None:
        made, ids = self.run(PHYSICAL)
        made.run()
        assert rows(made).startswith("s0:8 | s0:8 | s0:4 s1:3 s2:1 | s0* s1* s2:2 | s0* s1* s2*")
        assert [made.first_in[task] for task in ids] == [3, 3, 4]

    @pytest.mark.parametrize("policy", ROTATING)
    def test_rotating(self, policy: dict[str, str]) -> None:
        made, ids = self.run(policy)
        made.run()
        assert rows(made).startswith("s0:8 | s1:3 s2:3 s0:2 | s1* s2* s0:6 | s1* s2* s0:4 | s0* s1* s2*")
        assert [made.first_in[task] for task in ids] == [4, 2, 2]


class TestExtras:
    def test_continuous_batching_off_lets_generation_drain_first(self) -> None:
        made = Bench.make(cont_batching=False)
        made.submit(0, 3, n_predict=3)
        made.step()
        made.submit(1, 3)
        made.step()
        assert made.slot(1)["waiting_for"] == "continuous batching is off and slot 0 generates"
        made.run()
        assert rows(made) == "s0:3 | s0* | s0* | s1:3"

    def test_the_cursor_means_a_position_not_a_task(self) -> None:
        made = Bench.make(policy=AFTER_LAST)
        first = made.submit(0, 20)
        made.submit(1, 8)
        made.step()
        assert made.scheduler.cancel(first, made.now) is not None
        made.submit(0, 8)
        made.run()
        assert rows(made) == "s0:8 | s1:8 | s0:8"
