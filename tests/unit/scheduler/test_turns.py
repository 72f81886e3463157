"""Nobody is passed over without a bound: another group leads while one generates, and a long prompt among short ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler import turns
from engine.scheduler.task import Group
from tests.unit.scheduler.harness import EMBEDDING, A, B, Bench

AFTER_FIRST = {"prefill_order": "rotating"}
AFTER_LAST = {"prefill_order": "rotating", "rotation_start": "after_last"}
FAIR = {"prefill_order": "fair"}
SHORTEST = {"prefill_order": "shortest_first"}
TAKING_TURNS = [pytest.param(policy, id=policy["prefill_order"]) for policy in (AFTER_FIRST, FAIR, SHORTEST)]


class TestGroups:
    """Slot 3 generates in group A, slot 1 has a prompt in group B; four slots, so eight batches may pass slot 1 over."""

    def bench(self, policy: dict[str, str], *, cont_batching: bool = True) -> Bench:
        made = Bench.make(policy=policy, cont_batching=cont_batching)
        made.submit(3, 1, n_predict=100, group=A)
        made.step()
        made.submit(1, 12, n_predict=3, group=B)
        return made

    @pytest.mark.parametrize("policy", TAKING_TURNS)
    def test_the_other_group_leads_when_it_was_passed_over_often_enough(self, policy: dict[str, str]) -> None:
        made = self.bench(policy)
        for _ in range(18):
            made.step()
        assert made.rows == ["s3:1", *["s3*"] * 8, "s1:8", *["s3*"] * 8, "s1:4"]
        assert made.plans[9].anchor == 1
        assert [skip.slot for skip in made.plans[9].skipped] == [3]

    @pytest.mark.parametrize("policy", TAKING_TURNS)
    def test_its_decode_tokens_take_turns_too(self, policy: dict[str, str]) -> None:
        """The lowest generating slot sets the group, now slot 1's, until slot 3 is due."""
        made = self.bench(policy)
        for _ in range(22):
            made.step()
        assert made.rows[18:] == ["s1:4", "s1*", "s1*", "s3*", "s3*"]

    @pytest.mark.parametrize("policy", [{"prefill_order": "physical"}, AFTER_LAST])
    def test_the_original_orders_have_no_such_bound(self, policy: dict[str, str]) -> None:
        made = self.bench(policy)
        for _ in range(40):
            made.step()
        assert made.rows[1:] == ["s3*"] * 40

    def test_without_continuous_batching_generation_drains_first(self) -> None:
        made = self.bench(AFTER_FIRST, cont_batching=False)
        for _ in range(40):
            made.step()
        assert made.rows[1:] == ["s3*"] * 40

    def test_what_leads_brings_all_of_its_group(self) -> None:
        made = Bench.make(policy=AFTER_FIRST)
        made.submit(0, 1, n_predict=100, group=A)
        made.submit(2, 1, n_predict=100, group=B)
        made.step()
        made.step()
        made.submit(1, 4, group=B)
        made.submit(3, 4, group=A)
        for _ in range(8):
            made.step()
        assert made.rows[8] == "s2:1 s1:4"

    def test_a_prompt_for_which_its_own_group_leaves_no_room_cannot_lead(self) -> None:
        made = Bench.make(n_batch=2, policy=SHORTEST)
        made.submit(0, 1, n_predict=100, group=B)
        made.submit(1, 1, n_predict=100, group=A)
        made.submit(2, 1, n_predict=100, group=A)
        for _ in range(12):
            made.step()
        made.submit(3, 9, group=A)
        served = {0: 0, 1: 0, 2: 0}
        for _ in range(40):
            made.step()
            for entry in made.plans[-1].entries:
                served[entry.slot] += 1
        assert served[0] >= 30
        assert served[1] == served[2] >= 4

    def test_a_share_of_generation_delays_a_turn_and_does_not_lose_it(self) -> None:
        """About every second batch takes prompt tokens, and slot 0 in the generating group has enough for all of them."""
        made = Bench.make(policy={**AFTER_FIRST, "decode_share": 0.5})
        made.took = 1.0
        made.submit(3, 1, n_predict=100, group=A)
        made.step()
        made.submit(0, 400, group=A)
        made.submit(1, 4, group=B)
        for _ in range(20):
            made.step()
        assert made.rows[1:7] == ["s3*", "s3* s0:7", "s3* s0:7", "s3*", "s3* s0:7", "s3*"]
        assert made.rows[17] == "s1:4"
        assert sum("s0:" in row for row in made.rows[:17]) == 8


pools = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([A, B, Group(), EMBEDDING]), st.integers(1, 30)), min_size=2, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(pool=pools, policy=st.sampled_from([AFTER_FIRST, FAIR, SHORTEST]), steps=st.integers(20, 60))
def test_every_busy_slot_is_served_within_the_bound(
    pool: list[tuple[int, Group, int]], policy: dict[str, str], steps: int
) -> None:
    """Any groups, prompts and answers, each slot refilled at once; only a batch full of decode tokens can exceed it, not here."""
    n = len(pool)
    made = Bench.make(slots=n, policy=policy)
    waited = [0] * n
    for _ in range(steps):
        for slot, (size, group, n_predict) in enumerate(pool):
            if made.free(slot):
                made.submit(slot, min(size, 8) if group is EMBEDDING else size, group=group, n_predict=n_predict)
                waited[slot] = 0
        made.step()
        served = {entry.slot for entry in made.plans[-1].entries}
        waited = [0 if slot in served else waited[slot] + 1 for slot in range(n)]
        assert max(waited) <= turns.patience(n) + n - 1
