"""Drafted tokens: the same output as without, never in a prompt's way, and only as long as they pay."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.plan import EntryKind, FinishReason, Outcome, Plan
from engine.scheduler.policy import Speculative
from tests.unit.scheduler.harness import Bench, FakeModel
from tests.unit.scheduler.repeaters import ON, FakeMixed, drafted, repeating
from tests.unit.scheduler.test_properties import Wish, policies, wishes


class TestPolicy:
    def test_off_plans_no_drafts_and_runs_are_steady(self) -> None:
        made = repeating({})
        made.submit(0, 5, n_predict=60)
        for _ in range(20):
            made.step()
        assert made.scheduler._steady is not None
        assert made.scheduler._planner.speculation is None
        assert not drafted(made)

    def test_ngram_generates_the_same_in_fewer_batches(self) -> None:
        outputs, batches = [], []
        for policy in ({}, ON):
            made = repeating(policy)
            made.submit(0, 5, n_predict=100)
            made.submit(1, 7, n_predict=60)
            made.run()
            outputs.append(made.outputs)
            batches.append(len(made.plans))
        assert outputs[0] == outputs[1]
        assert batches[1] < batches[0] / 4

    def test_n_max_bounds_each_draft(self) -> None:
        made = repeating({**ON, "speculative_n_max": 3})
        made.submit(0, 5, n_predict=60)
        made.run()
        lengths = [len(entry.tokens) for plan in made.plans for entry in plan.entries if entry.kind is EntryKind.GENERATION]
        assert max(lengths) == 4

    def test_n_min_drops_shorter_drafts(self) -> None:
        made = repeating({**ON, "speculative_n_min": 8, "speculative_n_max": 16})
        made.submit(0, 5, n_predict=60)
        made.run()
        lengths = {len(entry.tokens) - 1 for plan in made.plans for entry in plan.entries if entry.kind is EntryKind.GENERATION}
        assert lengths & set(range(8, 17))
        assert not lengths & set(range(1, 8))

    def test_ngram_size_is_how_much_must_repeat(self) -> None:
        made = repeating({**ON, "speculative_ngram_size": 30})
        made.submit(0, 5, n_predict=30)
        made.run()
        assert not drafted(made)

    def test_a_request_can_ask_for_fewer_or_none(self) -> None:
        made = repeating(ON)
        made.submit(0, 5, n_predict=60, draft_max=0)
        made.submit(1, 5, n_predict=60, draft_max=2)
        made.run()
        lengths = {entry.slot: 0 for plan in made.plans for entry in plan.entries}
        for plan in made.plans:
            for entry in plan.entries:
                if entry.kind is EntryKind.GENERATION:
                    lengths[entry.slot] = max(lengths[entry.slot], len(entry.tokens) - 1)
        assert lengths == {0: 0, 1: 2}

    def test_draft_needs_a_model_and_any_draft_a_memory_that_takes_tokens_back(self) -> None:
        made = Bench.make(1, 8, policy={"speculative": "draft"})
        state = made.scheduler.policy(0.0)
        assert state.effective.speculative is Speculative.OFF
        assert "No draft model" in state.reasons["speculative"]
        made = Bench.make(1, 8, policy={"speculative": "draft"}, draft_unfit="its vocabulary is another one")
        assert "its vocabulary is another one" in made.scheduler.policy(0.0).reasons["speculative"]
        made = Bench.make(1, 8, policy=ON, can_draft=False)
        state = made.scheduler.policy(0.0)
        assert state.effective.speculative is Speculative.OFF
        assert "recurrent" in state.reasons["speculative"]

    def test_draft_asks_the_model_and_takes_what_it_answers(self) -> None:
        made = repeating({"speculative": "draft"}, draft_model=True)
        made.submit(0, 5, n_predict=50)
        asked = []
        while made.scheduler.has_work:
            made.now += 1.0
            plan = made.scheduler.plan(made.now)
            outcome = made.model.run(plan)
            outcome.drafts = {wish.slot: answer(wish.n, wish.cells, plan, outcome) for wish in plan.wishes}
            asked += [wish.n for wish in plan.wishes]
            made.close(plan, made.scheduler.settle(plan, outcome, made.now + 0.5))
        assert max(asked) > 4
        assert drafted(made) > 20
        assert len(made.plans) < 25
        assert next(iter(made.outputs.values())) == [n % 5 for n in range(5, 55)]


def answer(n: int, cells: Any, plan: Plan, outcome: Outcome) -> tuple[int, ...]:
    """What a draft model that knows the repeater says."""
    run = (outcome.runs or {}).get(plan.entries[0].slot) or (outcome.tokens[plan.entries[0].slot],)
    known = len(cells) + len(run) + 1
    return tuple((known + k) % 5 for k in range(n))


class TestOthers:
    def test_beside_prompts_nothing_is_drafted(self) -> None:
        made = repeating(ON, n_ubatch=64)
        made.submit(0, 5, n_predict=2000)
        for _ in range(20):
            made.step()
        assert made.plans[-1].drafted
        made.submit(1, 150, n_predict=2)
        for _ in range(3):
            made.step()
            assert made.plans[-1].drafted == 0
            assert len(made.plans[-1].entries) == 2

    def test_a_batch_with_drafts_fits_one_sub_batch(self) -> None:
        made = repeating({**ON, "speculative_n_max": 16}, n_ubatch=12)
        made.submit(0, 5, n_predict=100)
        made.submit(1, 5, n_predict=100)
        made.run()
        assert max(plan.n_tokens for plan in made.plans if plan.drafted) == 12

    def test_drafts_never_take_cells_of_idle_slots_in_a_pool(self) -> None:
        made = repeating(ON, kv_mode="unified", n_ctx=80, n_ctx_slot=80)
        made.submit(0, 20, n_predict=1)
        made.run()
        made.submit(1, 5, n_predict=50)
        made.run()
        assert drafted(made)
        assert not any(plan.purges for plan in made.plans)

    def test_a_draft_that_finds_no_room_costs_nobody_a_task(self) -> None:
        made = repeating(ON, kv_mode="unified", n_ctx=400, n_ctx_slot=400)
        task = made.submit(0, 5, n_predict=60)
        refused = 0
        while made.scheduler.has_work:
            made.now += 1.0
            plan = made.scheduler.plan(made.now)
            if plan.drafted and not refused:
                refused += 1
                made.close(plan, made.scheduler.overflow(plan, "full", made.now))
                continue
            made.close(plan, made.scheduler.settle(plan, made.model.run(plan), made.now + 0.5))
        assert refused == 1
        assert made.ended[task].reason is FinishReason.LIMIT
        assert len(made.outputs[task]) == 60

    def test_a_cohort_drafts_only_while_it_generates(self) -> None:
        made = repeating({**ON, "phase": "barrier"})
        made.submit(0, 100, n_predict=60)
        made.submit(1, 5, n_predict=60)
        made.run()
        assert {plan.phase for plan in made.plans if plan.drafted} == {"tg"}

    def test_a_stretch_of_tokens_is_kept_to(self) -> None:
        made = repeating({**ON, "phase": "barrier", "barrier_max_generation_tokens": 25})
        first = made.submit(0, 5, n_predict=100)
        made.step()
        made.submit(1, 5, n_predict=3)
        while made.free(1) or made.slot(1)["state"] == "queued":
            made.step()
        assert len(made.outputs[first]) == 25

    def test_a_stop_in_the_middle_of_a_run_leaves_the_rest_uncounted(self) -> None:
        made = repeating(ON)
        task = made.submit(0, 5, n_predict=200)
        while not (made.plans and made.plans[-1].drafted > 8):
            made.step()
        before = made.scheduler._totals.generated_tokens
        n = len(made.outputs[task]) - 3
        finished = made.scheduler.finish(task, FinishReason.WORD, made.now, n)
        assert finished is not None
        assert finished.n_generated == n
        assert made.scheduler._totals.generated_tokens == before - 3

    def test_a_full_context_ends_at_the_same_token(self) -> None:
        ends = []
        for policy in ({}, ON):
            made = repeating(policy, n_ctx_slot=60, n_ctx=120)
            task = made.submit(0, 5, n_predict=-1)
            made.run()
            ends.append((made.outputs[task], made.ended[task].truncated))
        assert ends[0] == ends[1]


class TestPay:
    def test_random_text_is_drafted_for_next_to_never(self) -> None:
        made = Bench.make(1, 64, policy=ON)
        made.model = FakeModel(1, n_vocab=10_000)
        made.took = 0.5
        made.submit(0, 5, n_predict=800)
        made.run()
        assert drafted(made) <= 8

    def test_a_text_without_repetition_is_looked_at_ever_more_rarely(self) -> None:
        made = Bench.make(1, 64, policy=ON)
        made.model = FakeModel(1, n_vocab=1_000_000)
        made.took = 0.5
        made.submit(0, 5, n_predict=300)
        in_runs = 0
        while made.scheduler.has_work:
            in_runs += made.scheduler._steady is not None
            made.step()
        assert in_runs > 200

    def test_dear_drafts_are_left_alone_after_a_try(self) -> None:
        """Each drafted token takes as long as a batch without: none can pay."""
        made = repeating(ON)
        made.submit(0, 5, n_predict=300)
        while made.scheduler.has_work:
            made.now += 1.0
            plan = made.scheduler.plan(made.now)
            outcome = made.model.run(plan)
            made.now += 0.1 * (1 + 1.1 * plan.drafted)
            made.close(plan, made.scheduler.settle(plan, outcome, made.now))
        assert 0 < drafted(made) < 40

    def test_what_was_drafted_and_right_is_told(self) -> None:
        made = repeating(ON)
        task = made.submit(0, 5, n_predict=80)
        records = []
        while made.scheduler.has_work:
            made.step()
            records.append(made.scheduler.record(made.plans[-1], 0.0, 1.0, 1.0, 1.0))
        finished = made.ended[task]
        assert finished.n_drafted == drafted(made) == sum(n for record in records for _, n, _ in record.drafted)
        assert finished.n_accepted == sum(n for record in records for _, _, n in record.drafted)
        assert 0 < finished.n_accepted <= finished.n_drafted
        totals = made.scheduler._totals
        assert (totals.drafted_tokens, totals.accepted_tokens) == (finished.n_drafted, finished.n_accepted)
        assert totals.drafts == sum(bool(record.drafted) for record in records)


drafting = st.fixed_dictionaries(
    {
        "speculative": st.sampled_from(["off", "ngram", "ngram", "ngram"]),
        "speculative_n_max": st.integers(1, 16),
        "speculative_n_min": st.integers(0, 3),
        "speculative_ngram_size": st.integers(1, 3),
    }
)
both = st.builds(lambda policy, drafts: {**policy, **drafts}, policies, drafting)


@settings(max_examples=60, deadline=None)
@given(
    load=wishes,
    changes=st.dictionaries(st.integers(0, 30), both, min_size=1, max_size=6),
    first=both,
    kv_mode=st.sampled_from(["split", "unified"]),
    period=st.integers(1, 4),
    context_shift=st.booleans(),
)
def test_the_same_tokens_come_out_with_drafts_under_every_policy_and_every_switch(
    load: list[Wish], changes: dict[int, dict[str, Any]], first: dict[str, Any], kv_mode: str, period: int, context_shift: bool
) -> None:
    shifts = context_shift and kv_mode == "split"  # who shares cells in a pool does not shift, and that is a matter of time
    config: dict[str, Any] = {"kv_mode": kv_mode, "n_ctx_slot": 40, "n_ctx": 160, "n_ubatch": 64, "context_shift": shifts}
    assert serve(load, {0: first} | changes, period, config) == serve(load, {}, period, config)


def serve(load: list[Wish], changes: dict[int, dict[str, Any]], period: int, config: dict[str, Any]) -> Any:
    """Each task's tokens, why it ended and how much it counts as having generated."""
    made = Bench.make(4, 64, **config)
    made.model = FakeMixed(4, period)
    made.took = 0.5
    for step in range(600):
        for index, wish in enumerate(load):
            if wish.at == step:
                made.next_id = 100 * index
                children = tuple(made.next_id + 2 + child for child in range(wish.n_children))
                more: dict[str, Any] = {"group": wish.group, "children": children, "eog": frozenset({40})}
                made.submit(wish.slot, prompt=wish.prompt, n_predict=wish.n_predict * 8, **more)
        if step in changes:
            made.switch(**changes[step])
        if not made.scheduler.has_work and step > 12:
            break
        made.step()
        for slot, held in zip(made.scheduler._slots, made.model.cells, strict=True):
            assert slot.shift is not None or slot.cells == held[: len(slot.cells)]
    assert not made.scheduler.has_work
    return made.outputs, {task: (end.reason, end.n_generated, end.truncated) for task, end in made.ended.items()}
