"""Steady runs: what they plan, settle and record is what a scheduler without them would have planned, settled and recorded."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.plan import Plan, Settlement
from engine.scheduler.records import IterationRecord
from engine.scheduler.task import Group
from tests.unit.scheduler.harness import A, Bench
from tests.unit.scheduler.test_properties import Wish, policies

longer = st.lists(
    st.builds(
        Wish,
        at=st.integers(0, 40),
        slot=st.integers(-1, 3),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=20),
        n_predict=st.integers(1, 25),
        group=st.sampled_from([Group(), Group(), A]),
        n_children=st.sampled_from([0, 0, 1]),
    ),
    min_size=1,
    max_size=8,
)
Trace = list[tuple[Plan, Settlement, IterationRecord | None, dict[str, object]]]


def trace(load: list[Wish], acts: dict[int, Any], *, steady: bool, **config: Any) -> tuple[Trace, int]:
    """All that a caller can see of a load, and how many batches belonged to a steady run."""
    made = Bench.make(4, 8, n_ctx_slot=64, **config)
    seen: Trace = []
    in_runs = 0
    for step in range(120):
        for index, wish in enumerate(load):
            if wish.at == step:
                made.next_id = 100 * index
                children = tuple(made.next_id + 2 + child for child in range(wish.n_children))
                more: dict[str, Any] = {"group": wish.group, "children": children, "eog": frozenset({3})}
                made.submit(wish.slot, prompt=wish.prompt, n_predict=wish.n_predict, **more)
        act = acts.get(step)
        if isinstance(act, dict):
            made.switch(**act)
        elif isinstance(act, int):
            made.scheduler.cancel(100 * act + 1, made.now)
        if not steady:
            made.scheduler._steady = None
        in_runs += made.scheduler._steady is not None
        made.now += 1.0
        plan = made.scheduler.plan(made.now)
        settlement = made.scheduler.settle(plan, made.model.run(plan), made.now + 0.5)
        record = made.scheduler.record(plan, made.now, 1.0, 2.0, 3.0) if plan.entries else None
        seen.append((plan, settlement, record, made.view()))
    return seen, in_runs


@settings(max_examples=60, deadline=None)
@given(
    load=longer,
    acts=st.dictionaries(st.integers(0, 60), st.one_of(policies, st.integers(0, 4)), max_size=4),
    kv_mode=st.sampled_from(["split", "unified"]),
)
def test_a_run_shows_nothing_that_planning_anew_would_not(load: list[Wish], acts: dict[int, Any], kv_mode: str) -> None:
    n_ctx = 90 if kv_mode == "unified" else 256
    fast, _ = trace(load, acts, steady=True, kv_mode=kv_mode, n_ctx=n_ctx)
    slow, none = trace(load, acts, steady=False, kv_mode=kv_mode, n_ctx=n_ctx)
    assert none == 0
    for one, other in zip(fast, slow, strict=True):
        assert one == other


def test_generation_alone_is_planned_as_a_run() -> None:
    """Without this the property above could hold because no run ever begins."""
    load = [Wish(0, 0, [1, 0, 1], 20, Group(), 0), Wish(0, 1, [0, 0, 1], 20, Group(), 0)]
    _, in_runs = trace(load, {}, steady=True)
    assert in_runs >= 15


def test_a_missing_token_in_a_run_fails_its_slot_alone() -> None:
    made = Bench.make(2, 8)
    first, second = made.submit(0, 2, n_predict=50), made.submit(1, 2, n_predict=50)
    while made.scheduler._steady is None:
        made.step()
    plan = made.scheduler.plan(made.now)
    outcome = made.model.run(plan)
    del outcome.tokens[0]
    made.close(plan, made.scheduler.settle(plan, outcome, made.now))
    assert "no token" in made.ended[first].error
    made.run()
    assert len(made.outputs[second]) == 50


def test_a_run_ends_before_idle_slots_must_give_up_cells_of_a_unified_pool() -> None:
    made = Bench.make(2, 8, kv_mode="unified", n_ctx=24, n_ctx_slot=24)
    made.submit(0, 8, n_predict=1)
    made.run()
    made.submit(1, 4, n_predict=15)
    made.run()
    purged = [plan.purges for plan in made.plans if plan.purges]
    assert purged == [(0,)]
