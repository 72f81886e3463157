"""What each rotation rule guarantees and what it does not (n_batch 8; a slot marked + is refilled as soon as it is free)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.plan import EntryKind
from engine.scheduler.policy import PhaseMode, PrefillOrder
from engine.scheduler.task import Group
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench

AFTER_LAST = {"prefill_order": "rotating", "rotation_start": "after_last"}
AFTER_FIRST = {"prefill_order": "rotating", "rotation_start": "after_first"}


def run(made: Bench, steps: int, refill: dict[int, Callable[[], int]]) -> list[str]:
    for _ in range(steps):
        for slot, submit in refill.items():
            if made.free(slot):
                submit()
        made.step()
    return made.rows


class TestTailSqueeze:
    """Slot 0 gets 7 new tokens each time, slots 1 and 2 are long."""

    def rows(self, policy: dict[str, str]) -> list[str]:
        made = Bench.make(policy=policy)
        made.submit(1, 200)
        made.submit(2, 200)
        return run(made, 12, {0: lambda: made.submit(0, 7)})

    def test_after_last_has_the_limit(self) -> None:
        rows = self.rows(AFTER_LAST)
        assert rows == ["s0:7 s1:1", "s2:8"] * 6

    def test_after_first_does_not(self) -> None:
        assert self.rows(AFTER_FIRST) == ["s0:7 s1:1", "s1:8", "s2:8"] * 4


class TestAtomicPrompts:
    """Prompts that must fit as a whole: 5 on slot 0 and 3 on slot 2, both again and again, and one of 6 on slot 1."""

    def rows(self, policy: dict[str, str]) -> list[str]:
        made = Bench.make(policy=policy)
        made.submit(0, 5, group=EMBEDDING)
        made.submit(1, 6, group=EMBEDDING)
        refill = {slot: lambda slot=slot, n=n: made.submit(slot, n, group=EMBEDDING) for slot, n in ((0, 5), (2, 3))}
        return run(made, 8, refill)  # type: ignore[arg-type]

    def test_after_last_has_the_limit(self) -> None:
        assert self.rows(AFTER_LAST) == ["s0:5 s2:3"] * 8

    def test_after_first_does_not(self) -> None:
        assert self.rows(AFTER_FIRST)[1] == "s1:6"


class TestGroupStarvation:
    """Slot 0 in group A gets 5 new tokens each time, slot 1 in group B has 4, slot 2 in group A is long."""

    def rows(self, policy: dict[str, str]) -> list[str]:
        made = Bench.make(policy=policy)
        made.submit(0, 5, group=A)
        made.submit(1, 4, group=B)
        made.submit(2, 60, group=A)
        return run(made, 8, {0: lambda: made.submit(0, 5, group=A)})

    def test_after_last_has_the_limit(self) -> None:
        assert self.rows(AFTER_LAST) == ["s0:5 s2:3"] * 8

    def test_after_first_does_not(self) -> None:
        assert self.rows(AFTER_FIRST)[:2] == ["s0:5 s2:3", "s1:4"]


class TestAccounting:
    def test_a_slot_that_fails_with_tokens_in_the_batch_has_moved_the_cursor(self) -> None:
        made = Bench.make(policy=AFTER_LAST)
        broken = made.submit(0, 5)
        made.submit(1, 20)
        made.step(errors={0: "grammar stack is empty"})
        assert made.rows == ["s0:5 s1:3"]
        assert made.cursors == [1]
        assert made.ended[broken].error == "grammar stack is empty"
        made.step()
        assert made.rows[-1] == "s1:8"

    def test_every_token_of_a_visit_counts_as_service(self) -> None:
        """Nothing is computed outside the batch, so a visit without tokens is no service and one with tokens always is."""
        made = Bench.make(policy=AFTER_FIRST)
        for slot in range(4):
            made.submit(slot, 11 + slot)
        made.run()
        for plan in made.plans:
            prompts = [entry.slot for entry in plan.entries if entry.kind is EntryKind.PROMPT]
            if prompts:
                assert plan.cursor == prompts[0]

    def test_batch_order_is_visiting_order(self) -> None:
        """The price under split KV: slots 1 then 0 cannot share a ubatch as 0 then 1 could, which costs one more graph."""
        made = Bench.make(policy=AFTER_FIRST)
        made.submit(0, 20)
        made.submit(1, 3)
        made.step()
        made.step()
        assert [entry.slot for entry in made.plans[-1].entries] == [1, 0]


sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)
groups = st.sampled_from([A, B, Group()])


class TestBounds:
    @settings(max_examples=60, deadline=None)
    @given(sizes=sizes, policy=st.sampled_from([AFTER_LAST, AFTER_FIRST, {"prefill_order": "fair"}]), steps=st.integers(5, 40))
    def test_each_pending_slot_is_served_once_in_as_many_passes_as_there_are_slots(
        self, sizes: list[int], policy: dict[str, str], steps: int
    ) -> None:
        """Split KV, one group, splittable prompts, replacements at once on every slot."""
        n = len(sizes)
        made = Bench.make(slots=n, policy=policy)
        last_served = [0] * n
        for step in range(1, steps + 1):
            for slot, size in enumerate(sizes):
                if made.free(slot):
                    made.submit(slot, size)
            made.step()
            for entry in made.plans[-1].entries:
                last_served[entry.slot] = step
            assert all(step - served < n for served in last_served)

    @settings(max_examples=60, deadline=None)
    @given(
        pool=st.lists(st.tuples(st.integers(1, 40), groups, st.booleans()), min_size=1, max_size=6),
        policy=st.sampled_from([AFTER_FIRST, {"prefill_order": "fair"}]),
    )
    def test_after_first_lets_every_pending_slot_lead_once_a_round(
        self, pool: list[tuple[int, Group, bool]], policy: dict[str, str]
    ) -> None:
        """Any mix of groups and of atomic prompts, as long as nothing generates."""
        n = len(pool)
        made = Bench.make(slots=n, policy=policy)
        led = [0] * n
        for step in range(1, 25):
            for slot, (size, group, atomic) in enumerate(pool):
                if made.free(slot):
                    made.submit(slot, min(size, 8) if atomic else size, group=EMBEDDING if atomic else group)
                    led[slot] = step - 1 if not made.rows else led[slot]
            made.step()
            led[made.plans[-1].entries[0].slot] = step
            assert all(step - leader <= n for leader in led)

    @settings(max_examples=60, deadline=None)
    @given(
        sizes=sizes,
        order=st.sampled_from(list(PrefillOrder)),
        phase=st.sampled_from(list(PhaseMode)),
    )
    def test_no_room_is_wasted_while_a_compatible_prompt_waits(self, sizes: list[int], order: str, phase: str) -> None:
        made = Bench.make(slots=6, policy={"prefill_order": order, "phase": phase})
        for slot, size in enumerate(sizes):
            made.submit(slot, size)
        made.run()
        prompt_batches = [plan.n_tokens for plan in made.plans if plan.entries]
        assert all(n == 8 for n in prompt_batches[:-1])
        assert sum(prompt_batches) == sum(sizes)

    @pytest.mark.parametrize("order", ["rotating", "fair"])
    def test_all_orders_take_the_same_number_of_batches(self, order: str) -> None:
        counts = []
        for name in ("physical", order):
            made = Bench.make(policy={"prefill_order": name})
            for slot, size in enumerate((20, 13, 9, 1)):
                made.submit(slot, size)
            counts.append(made.run().scheduler.iteration)
        assert counts[0] == counts[1] == 6
