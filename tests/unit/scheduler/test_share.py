"""The share of the time that generation keeps while prompts come in: a time account, on a clock that moves as told."""

from __future__ import annotations

import pytest

from engine.backends.base import BackendOptions
from engine.backends.simulated import CostModel, SimulatedBackend
from engine.clock import VirtualClock
from engine.scheduler.config import SchedulerConfig
from engine.scheduler.core import Scheduler
from engine.scheduler.plan import EntryKind, Outcome, Plan
from engine.scheduler.policy import Policy, PrefillOrder
from engine.scheduler.share import ShareAccount
from engine.scheduler.task import Task
from tests.unit.scheduler.harness import B, Bench


def prompts_in(plan: Plan) -> bool:
    return any(entry.kind is EntryKind.PROMPT for entry in plan.entries)


def timed(made: Bench, prompt_s: float, decode_s: float) -> Plan:
    """One iteration that takes `prompt_s` with prompt tokens and `decode_s` without."""
    plan = made.scheduler.plan(made.now)
    made.now += prompt_s if prompts_in(plan) else decode_s
    made.close(plan, made.scheduler.settle(plan, made.model.run(plan), made.now))
    return plan


class TestAccount:
    """A decode round takes 1 s and a batch with prompt tokens 3 s; slot 0 generates and slot 1 has 40 tokens to do."""

    def bench(self, share: float | None, **policy: object) -> Bench:
        made = Bench.make(policy={"decode_share": share, **policy})
        made.submit(0, 1, n_predict=1000)
        timed(made, 3.0, 1.0)
        made.submit(1, 40)
        return made

    def rows(self, share: float | None, n: int) -> list[str]:
        made = self.bench(share)
        for _ in range(n):
            timed(made, 3.0, 1.0)
        return made.rows[1:]

    def test_half(self) -> None:
        assert self.rows(0.5, 9) == ["s0*", "s0* s1:7", "s0*", "s0*", "s0* s1:7", "s0*", "s0*", "s0*", "s0* s1:7"]

    def test_a_quarter(self) -> None:
        assert self.rows(0.25, 7) == ["s0*", "s0* s1:7", "s0* s1:7", "s0*", "s0* s1:7", "s0*", "s0* s1:7"]

    def test_without_one_every_batch_takes_prompt_tokens(self) -> None:
        assert self.rows(None, 3) == ["s0* s1:7"] * 3

    def test_the_prompt_says_what_generation_is_owed(self) -> None:
        made = self.bench(0.5)
        timed(made, 3.0, 1.0)
        assert made.slot(1)["waiting_for"] == "decode share: generation has the first batch"
        timed(made, 3.0, 1.0)
        timed(made, 3.0, 1.0)
        assert made.slot(1)["waiting_for"] == "decode share: generation is owed 2000 ms"

    def test_the_account_is_cleared_when_nothing_generates_any_more(self) -> None:
        made = self.bench(0.9)
        for _ in range(3):
            timed(made, 3.0, 1.0)
        made.scheduler.cancel(101, made.now)
        timed(made, 3.0, 1.0)
        assert made.rows[-1] == "s1:8"
        made.submit(0, prompt=[1], n_predict=9)
        timed(made, 3.0, 1.0)
        assert made.rows[-1].startswith("s0:1")
        timed(made, 3.0, 1.0)
        timed(made, 3.0, 1.0)
        assert made.rows[-2:] == ["s0*", "s0* s1:7"]

    def test_a_failed_batch_is_on_the_account_too(self) -> None:
        made = Bench.make(policy={"decode_share": 0.5})
        made.submit(0, 1, n_predict=1000)
        made.submit(2, 1, n_predict=1000, group=B)
        timed(made, 3.0, 1.0)
        made.submit(1, 40)
        timed(made, 3.0, 1.0)
        plan = made.scheduler.plan(made.now)
        assert prompts_in(plan)
        made.now += 3.0
        made.close(plan, made.scheduler.fail(plan, "Compute error.", made.now))
        assert made.scheduler._planner._share.debt == 2.0

    def test_without_continuous_batching_nothing_contends(self) -> None:
        made = Bench.make(policy={"decode_share": 0.5}, cont_batching=False)
        made.submit(0, 1, n_predict=4)
        timed(made, 3.0, 1.0)
        made.submit(1, 8)
        timed(made, 3.0, 1.0)
        assert made.slot(1)["waiting_for"] == "continuous batching is off and slot 0 generates"

    def test_a_switch_counts_from_the_next_iteration(self) -> None:
        made = self.bench(None)
        timed(made, 3.0, 1.0)
        made.switch(decode_share=0.5)
        timed(made, 3.0, 1.0)
        assert made.rows[-2:] == ["s0* s1:7", "s0*"]
        made.switch(decode_share=None)
        timed(made, 3.0, 1.0)
        assert made.rows[-1] == "s0* s1:7"

    def test_not_more_than_one_round_is_paid_in_advance(self) -> None:
        account = ShareAccount()
        for _ in range(20):
            account.prompts_wait(0.5, contended=True, now=0.0)
            account.book(2.0, with_prompts=False)
        assert account.debt == -2.0

    def test_a_prompt_that_no_order_lets_in_does_not_hoard_time(self) -> None:
        made = Bench.make(policy={"decode_share": 0.5})
        made.submit(0, 1, n_predict=1000)
        timed(made, 3.0, 1.0)
        made.submit(1, 40, group=B)
        for _ in range(50):
            timed(made, 3.0, 1.0)
        assert made.scheduler._planner._share.debt == -1.0


def share_of_decoding(policy: Policy) -> float:
    """Share of wall time in batches without prompt tokens, from the first to the last one that carries some.

    Four slots generate, four others get a new prompt of 3,000 tokens as soon as they are free.
    """
    clock = VirtualClock()
    backend = SimulatedBackend(BackendOptions(n_slots=8, n_ctx=8 * 32768, kv_mode="split", n_batch=512), CostModel(), clock)
    info = backend.info
    config = SchedulerConfig(n_slots=8, n_ctx_slot=info.n_ctx_slot, n_ctx=info.n_ctx, n_batch=512)
    scheduler = Scheduler(config, policy)
    for slot in range(4):
        scheduler.submit(Task(slot, [1, slot], n_predict=-1, id_slot=slot), clock.now())
    spent, next_id = {True: 0.0, False: 0.0}, 100
    contended = False
    for _ in range(1500):
        for slot in range(4, 8):
            if contended and scheduler._slots[slot].task is None:
                next_id += 1
                scheduler.submit(Task(next_id, [next_id % 256] * 3000, n_predict=1, id_slot=slot), clock.now())
        plan = scheduler.plan(clock.now())
        began = clock.now()
        scheduler.settle(plan, backend.run(plan) if plan.entries else Outcome(), clock.now())
        if contended:
            spent[prompts_in(plan)] += clock.now() - began
        contended = True
    return spent[False] / (spent[True] + spent[False])


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("order", [PrefillOrder.PHYSICAL, PrefillOrder.ROTATING])
def test_generation_keeps_its_share_of_contended_time(share: float, order: PrefillOrder) -> None:
    assert share_of_decoding(Policy(order, decode_share=share)) == pytest.approx(share, rel=0.1)


def test_without_a_share_prompts_take_all_of_it() -> None:
    assert share_of_decoding(Policy()) < 0.01
